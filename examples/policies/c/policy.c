/* Which idle runners go first: the youngest, because the caches of the old ones are warm. */
#include "pacer.h"

static bool goes_before(const void *all, uint32_t one, uint32_t other) {
    const pacer_candidate *a = (const pacer_candidate *)all + one, *b = (const pacer_candidate *)all + other;
    return a->age != b->age ? a->age < b->age : pacer_compare(a->name, b->name) < 0;
}

static pacer_choices select(const pacer_scale_down_request *request) {
    const pacer_candidate *all = request->candidates.at;
    uint32_t count = request->candidates.len, len = request->surplus < count ? request->surplus : count;
    uint32_t *order = pacer_order(all, count, goes_before);
    pacer_choice *choices = pacer_alloc(len * sizeof *choices, _Alignof(pacer_choice));
    for (uint32_t i = 0; i < len; i++)
        choices[i] = (pacer_choice){ order[i], pacer_number(all[order[i]].age, PACER_TEXT(" s old")), { 0, 0 } };
    return (pacer_choices){ false, { { choices, len } } };
}

PACER_DESCRIBE("newest-first", "0.1.0", "Removes the youngest runners and keeps those with warm caches")
PACER_SCALE_DOWN(select)
