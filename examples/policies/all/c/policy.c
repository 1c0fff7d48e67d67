/* All four decisions. Each of the last lines exports one: delete those that the shipped policy shall go on making. */
#include "pacer.h"

/* Which idle runners go first: the youngest, because the caches of the old ones are warm. */

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

static bool is(pacer_text one, pacer_text other) { return pacer_compare(one, other) == 0; }

/* What to do about runners that ended or failed: others take their places, later after each failure. */
static pacer_verdicts decide(const pacer_restart_request *request) {
    uint32_t len = request->subjects.len;
    pacer_verdict *verdicts = pacer_alloc(len * sizeof *verdicts, _Alignof(pacer_verdict));
    for (uint32_t i = 0; i < len; i++) {
        const pacer_subject *subject = &request->subjects.at[i];
        if (is(subject->cause, PACER_TEXT("completed")))
            verdicts[i] = (pacer_verdict){ i, PACER_TEXT("replace"), { false, 0 }, PACER_TEXT("its job is done"), { 0, 0 } };
        else if (subject->attempts > 5)
            verdicts[i] = (pacer_verdict){ i, PACER_TEXT("quarantine"), { false, 0 }, pacer_number(subject->attempts, PACER_TEXT(" attempts failed")), { 0, 0 } };
        else
            verdicts[i] = (pacer_verdict){ i, PACER_TEXT("replace"), { true, 10 * subject->attempts }, subject->cause, { 0, 0 } };
    }
    return (pacer_verdicts){ false, { { verdicts, len } } };
}

/* How much capacity to hold: one runner for each job. Add reservations of your own to it. */
static pacer_plan plan(const pacer_capacity_request *request) { return (pacer_plan){ false, { pacer_one_per_job(request) } }; }

/* Which jobs that died with their runners run again: once, where their place was taken away. */
static pacer_verdicts again(const pacer_recover_request *request) {
    uint32_t len = request->jobs.len;
    pacer_verdict *verdicts = pacer_alloc(len * sizeof *verdicts, _Alignof(pacer_verdict));
    for (uint32_t i = 0; i < len; i++) {
        const pacer_dead_job *job = &request->jobs.at[i];
        bool first = job->attempt == 1;
        bool taken = is(job->cause, PACER_TEXT("node-lost")) || is(job->cause, PACER_TEXT("evicted")) || is(job->cause, PACER_TEXT("preempted"));
        pacer_text reason = first ? job->cause : pacer_told(PACER_TEXT("attempt "), job->attempt, PACER_TEXT(" of its run"));
        verdicts[i] = (pacer_verdict){ i, first && taken ? PACER_TEXT("rerun") : PACER_TEXT("leave"), { false, 0 }, reason, { 0, 0 } };
    }
    return (pacer_verdicts){ false, { { verdicts, len } } };
}

PACER_DESCRIBE("newest-first", "0.1.0", "Makes all four decisions, and removes the youngest runners first")
PACER_SCALE_DOWN(select)
PACER_RESTART(decide)
PACER_CAPACITY(plan)
PACER_RECOVER(again)
