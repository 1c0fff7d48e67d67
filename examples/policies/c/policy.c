/* Which idle runners go first: the youngest, because the caches of the old ones are warm. */
#include "pacer.h"

static bool goes_before(const pacer_candidate *a, const pacer_candidate *b) {
    return a->age != b->age ? a->age < b->age : pacer_compare(a->name, b->name) < 0;
}

/* Sinks the candidate at `parent` to its place in a heap whose top is the last to go. */
static void sink(uint32_t *heap, uint32_t len, uint32_t parent, const pacer_candidate *all) {
    for (uint32_t child = 2 * parent + 1; child < len; child = 2 * parent + 1) {
        if (child + 1 < len && goes_before(&all[heap[child]], &all[heap[child + 1]])) child++;
        if (!goes_before(&all[heap[parent]], &all[heap[child]])) return;
        uint32_t swapped = heap[parent];
        heap[parent] = heap[child];
        heap[child] = swapped;
        parent = child;
    }
}

static pacer_choices select(const pacer_scale_down_request *request) {
    const pacer_candidate *all = request->candidates.at;
    uint32_t count = request->candidates.len, len = request->surplus < count ? request->surplus : count;
    uint32_t *order = pacer_alloc(count * sizeof *order, _Alignof(uint32_t));
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count / 2; i-- > 0;) sink(order, count, i, all);
    for (uint32_t left = count; left-- > 1;) {
        uint32_t last = order[0];
        order[0] = order[left];
        order[left] = last;
        sink(order, left, 0, all);
    }
    pacer_choice *choices = pacer_alloc(len * sizeof *choices, _Alignof(pacer_choice));
    for (uint32_t i = 0; i < len; i++)
        choices[i] = (pacer_choice){ order[i], pacer_number(all[order[i]].age, PACER_TEXT(" s old")), { 0, 0 } };
    return (pacer_choices){ false, { { choices, len } } };
}

PACER_DESCRIBE("newest-first", "0.1.0", "Removes the youngest runners and keeps those with warm caches")
PACER_SCALE_DOWN(select)
