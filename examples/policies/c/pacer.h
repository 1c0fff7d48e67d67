/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract pacer:policy@0.1.0, and recover of 0.2.0, for C, without a library: the structs lie in memory exactly as the host writes and reads them on wasm32.
 * What the fields mean is in wit/policy/v0.2.0/policy.wit.
 *
 * A policy defines one function and names it once:
 *
 *   static pacer_choices select(const pacer_scale_down_request *request) { ... }
 *   PACER_DESCRIBE("name", "0.1.0", "one line")
 *   PACER_SCALE_DOWN(select)
 *
 * Every call gets a fresh instance, so nothing is ever freed.
 */
#ifndef PACER_H
#define PACER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACER_EXPORT(name) __attribute__((export_name(name)))
#define PACER_LIST(item) struct { item *at; uint32_t len; }

typedef struct { const char *at; uint32_t len; } pacer_text;
typedef struct { bool some; uint32_t value; } pacer_option_u32;
typedef struct { bool some; int32_t value; } pacer_option_s32;
typedef struct { bool some; uint64_t value; } pacer_option_u64;
typedef struct { bool some; pacer_text value; } pacer_option_text;
typedef struct { pacer_text key, value; } pacer_attribute;
typedef PACER_LIST(pacer_attribute) pacer_attributes;
typedef PACER_LIST(pacer_text) pacer_texts;
typedef PACER_LIST(uint32_t) pacer_numbers;
typedef PACER_LIST(uint64_t) pacer_ids;

typedef struct { uint32_t pending, starting, idle, busy, stopping; } pacer_counts;
typedef struct { uint32_t samples, p50, p90, p99; } pacer_quantiles;
typedef struct { uint32_t limit, remaining, resets_in; } pacer_api_budget;

typedef struct {
    pacer_text ns, name, kind;
    pacer_texts labels;
    pacer_option_u32 min_replicas, max_replicas;
    uint32_t desired;
    pacer_counts counts;
    pacer_option_u32 last_scale_up, last_scale_down;
    pacer_text revision;
    bool ephemeral;
    struct { bool some; pacer_api_budget value; } budget;
    struct { bool some; pacer_quantiles value; } start_time, run_time;
    pacer_numbers arrivals;
    pacer_attributes attributes;
} pacer_pool;

typedef struct {
    pacer_text name;
    uint32_t runners, busy;
    bool draining;
    pacer_option_u32 age;
    pacer_attributes attributes;
} pacer_node;
typedef PACER_LIST(pacer_node) pacer_nodes;

/* Which idle runners go first. */

typedef struct {
    pacer_text name;
    uint32_t idle, age;
    pacer_option_u32 node;
    bool current;
    pacer_option_u32 last_job_end;
    pacer_attributes attributes;
} pacer_candidate;

typedef struct {
    double now;
    pacer_text settings;
    pacer_pool pool;
    pacer_nodes nodes;
    PACER_LIST(pacer_candidate) candidates;
    uint32_t surplus;
    pacer_attributes attributes;
} pacer_scale_down_request;

typedef struct { uint32_t index; pacer_text reason; pacer_attributes attributes; } pacer_choice;

/* With an error there is no answer: the shipped policy decides, and people read the text. */
typedef struct { bool is_error; union { PACER_LIST(pacer_choice) choices; pacer_text error; }; } pacer_choices;

/* What to do about a runner that ended, never registered, or went missing. */

typedef struct {
    pacer_text name, situation, cause;
    pacer_option_s32 exit_code;
    pacer_text message, github;
    bool was_registered;
    uint32_t since, age, attempts;
    bool ephemeral, stand_alone, current;
    pacer_option_u32 node;
    pacer_attributes attributes;
} pacer_subject;

typedef struct {
    double now;
    pacer_text settings;
    pacer_pool pool;
    pacer_nodes nodes;
    PACER_LIST(pacer_subject) subjects;
    pacer_attributes attributes;
} pacer_restart_request;

/* after is in seconds: for look-again 5 to 600, 60 if there is none; for recreate and replace 0 to 600 since the runner got into its situation. The
 * operator changes a number outside these bounds to the nearest bound. */
typedef struct {
    uint32_t index;
    pacer_text action;
    pacer_option_u32 after;
    pacer_text reason;
    pacer_attributes attributes;
} pacer_verdict;

typedef struct { bool is_error; union { PACER_LIST(pacer_verdict) verdicts; pacer_text error; }; } pacer_verdicts;

/* How much capacity to hold for which jobs until when. */

typedef struct {
    uint64_t id;
    pacer_text state;
    uint32_t queued;
    pacer_option_u32 started;
    pacer_text repository, workflow;
    pacer_texts labels;
    uint32_t attempt;
    pacer_option_text runner;
    pacer_attributes attributes;
} pacer_job;

typedef struct {
    pacer_text id;
    pacer_ids jobs;
    uint32_t replicas;
    int32_t effective;
    uint32_t expires;
    pacer_text reason;
    pacer_attributes attributes;
} pacer_reservation;
typedef PACER_LIST(pacer_reservation) pacer_reservations;

typedef struct {
    double now;
    pacer_text settings;
    pacer_pool pool;
    PACER_LIST(pacer_job) jobs;
    pacer_reservations reservations;
    pacer_attributes attributes;
} pacer_capacity_request;

typedef struct {
    pacer_reservations reservations;
    pacer_option_u32 ceiling, look_again;
    pacer_attributes attributes;
} pacer_capacity_plan;

typedef struct { bool is_error; union { pacer_capacity_plan plan; pacer_text error; }; } pacer_plan;

/* Whether a job that died with its runner shall run again. The answer is a pacer_verdicts with the actions rerun and leave. */

typedef struct {
    uint64_t id;
    pacer_option_u64 run;
    uint32_t attempt;
    pacer_text repository, workflow;
    pacer_texts labels;
    pacer_text runner, cause, message;
    uint32_t since, ran, recoveries;
    pacer_option_u32 node;
    pacer_attributes attributes;
} pacer_dead_job;

typedef struct {
    double now;
    pacer_text settings;
    pacer_pool pool;
    pacer_nodes nodes;
    PACER_LIST(pacer_dead_job) jobs;
    pacer_attributes attributes;
} pacer_recover_request;

/* The whole module shares one memory, whose end is moved and never moved back. */

extern unsigned char __heap_base;

static void *pacer_alloc(size_t size, size_t align) {
    static uintptr_t next;
    if (next == 0) next = (uintptr_t)&__heap_base;
    uintptr_t at = (next + align - 1) & ~(align - 1);
    uintptr_t end = at + size;
    if (end < at) __builtin_trap();
    uintptr_t there = __builtin_wasm_memory_size(0) << 16;
    if (end > there && __builtin_wasm_memory_grow(0, (end - there + 0xffff) >> 16) == SIZE_MAX) __builtin_trap();
    next = end;
    return (void *)at;
}

PACER_EXPORT("cabi_realloc") void *pacer_realloc(void *old, size_t old_size, size_t align, size_t size) {
    char *at = pacer_alloc(size, align);
    for (size_t i = 0; i < old_size && i < size; i++) at[i] = ((char *)old)[i];
    return at;
}

/* Some compilers make calls of these of plain loops. */
void *memcpy(void *to, const void *from, size_t len) {
    for (size_t i = 0; i < len; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int value, size_t len) {
    for (size_t i = 0; i < len; i++) ((char *)to)[i] = (char)value;
    return to;
}

/* Texts. */

#define PACER_TEXT(literal) ((pacer_text){ literal, sizeof(literal) - 1 })

static inline int pacer_compare(pacer_text a, pacer_text b) {
    for (uint32_t i = 0; i < a.len && i < b.len; i++)
        if (a.at[i] != b.at[i]) return (unsigned char)a.at[i] < (unsigned char)b.at[i] ? -1 : 1;
    return a.len < b.len ? -1 : a.len > b.len;
}

/* Three texts as one. */
static inline pacer_text pacer_joined(pacer_text one, pacer_text two, pacer_text three) {
    char *at = pacer_alloc(one.len + two.len + three.len, 1), *next = at;
    for (uint32_t i = 0; i < one.len; i++) *next++ = one.at[i];
    for (uint32_t i = 0; i < two.len; i++) *next++ = two.at[i];
    for (uint32_t i = 0; i < three.len; i++) *next++ = three.at[i];
    return (pacer_text){ at, one.len + two.len + three.len };
}

/* The number in decimal, between two texts. */
static inline pacer_text pacer_told(pacer_text before, uint64_t number, pacer_text after) {
    char digits[20];
    uint32_t from = sizeof digits;
    do digits[--from] = (char)('0' + number % 10);
    while (number /= 10);
    return pacer_joined(before, (pacer_text){ digits + from, sizeof digits - from }, after);
}

/* The number in decimal, followed by `unit`. */
static inline pacer_text pacer_number(uint32_t number, pacer_text unit) { return pacer_told(PACER_TEXT(""), number, unit); }

/* The number that a text is in decimal; `standard` where it is none. */
static inline uint32_t pacer_parsed(pacer_text text, uint32_t standard) {
    uint32_t number = 0;
    for (uint32_t i = 0; i < text.len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9' || number > (UINT32_MAX - 9) / 10) return standard;
        number = number * 10 + (uint32_t)(text.at[i] - '0');
    }
    return text.len > 0 ? number : standard;
}

/* A further fact; of no length where there is none of this key. */
static inline pacer_text pacer_fact(pacer_attributes facts, pacer_text key) {
    for (uint32_t i = 0; i < facts.len; i++)
        if (pacer_compare(facts.at[i].key, key) == 0) return facts.at[i].value;
    return (pacer_text){ "", 0 };
}

/* Orders. */

typedef bool pacer_before(const void *all, uint32_t one, uint32_t other);

/* Sinks the index at `parent` to its place in a heap whose top is the last to go. */
static void pacer_sink(uint32_t *heap, uint32_t len, uint32_t parent, const void *all, pacer_before *before) {
    for (uint32_t child = 2 * parent + 1; child < len; child = 2 * parent + 1) {
        if (child + 1 < len && before(all, heap[child], heap[child + 1])) child++;
        if (!before(all, heap[parent], heap[child])) return;
        uint32_t swapped = heap[parent];
        heap[parent] = heap[child];
        heap[child] = swapped;
        parent = child;
    }
}

/* The indices of `count` things, ordered: `before` says which of two of `all` is first. */
static inline uint32_t *pacer_order(const void *all, uint32_t count, pacer_before *before) {
    uint32_t *order = pacer_alloc(count * sizeof *order, _Alignof(uint32_t));
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count / 2; i-- > 0;) pacer_sink(order, count, i, all, before);
    for (uint32_t left = count; left-- > 1;) {
        uint32_t last = order[0];
        order[0] = order[left];
        order[left] = last;
        pacer_sink(order, left, 0, all, before);
    }
    return order;
}

/* A duration for people: 45 s, 14 min, 2 h 5 min, 3 d 4 h; the second unit is left out when it is zero. */
static inline pacer_text pacer_duration(uint32_t seconds) {
    if (seconds < 60) return pacer_number(seconds, PACER_TEXT(" s"));
    if (seconds < 3600) return pacer_number(seconds / 60, PACER_TEXT(" min"));
    bool days = seconds >= 86400;
    uint32_t big = days ? seconds / 86400 : seconds / 3600, small = days ? seconds % 86400 / 3600 : seconds % 3600 / 60;
    if (small == 0) return pacer_number(big, days ? PACER_TEXT(" d") : PACER_TEXT(" h"));
    return pacer_told(pacer_number(big, days ? PACER_TEXT(" d ") : PACER_TEXT(" h ")), small, days ? PACER_TEXT(" h") : PACER_TEXT(" min"));
}

/* Jobs. */

static inline bool pacer_runs(const pacer_job *job) { return pacer_compare(job->state, PACER_TEXT("in-progress")) == 0; }

/* Seconds until a job is given up: a day in the queue and five days in progress are GitHub's own limits. */
static inline uint32_t pacer_time_left(const pacer_job *job) {
    if (pacer_compare(job->state, PACER_TEXT("completed")) == 0) return 0;
    uint32_t limit = pacer_runs(job) ? 432000 : 86400, spent = !pacer_runs(job) ? job->queued : job->started.some ? job->started.value : 0;
    return spent < limit ? limit - spent : 0;
}

/* Jobs that nobody heard the end of, in order, and their places in the order of their ids. */
typedef struct { const pacer_job *job; bool covered; } pacer_open_job;
typedef struct { pacer_open_job *at; uint32_t len, *by_id; } pacer_open_jobs;

static inline bool pacer_first_come(const void *all, uint32_t one, uint32_t other) {
    const pacer_job *a = (const pacer_job *)all + one, *b = (const pacer_job *)all + other;
    if (pacer_runs(a) != pacer_runs(b)) return pacer_runs(a);
    return a->queued != b->queued ? a->queued > b->queued : a->id < b->id;
}

static inline bool pacer_smaller_id(const void *all, uint32_t one, uint32_t other) {
    const pacer_open_job *a = (const pacer_open_job *)all + one, *b = (const pacer_open_job *)all + other;
    return a->job->id != b->job->id ? a->job->id < b->job->id : one < other;
}

static inline pacer_open_jobs pacer_open(const pacer_job *jobs, uint32_t count) {
    pacer_open_jobs open = { pacer_alloc(count * sizeof(pacer_open_job), _Alignof(pacer_open_job)), 0, 0 };
    uint32_t *order = pacer_order(jobs, count, pacer_first_come);
    for (uint32_t i = 0; i < count; i++)
        if (pacer_time_left(&jobs[order[i]]) > 0) open.at[open.len++] = (pacer_open_job){ &jobs[order[i]], false };
    open.by_id = pacer_order(open.at, open.len, pacer_smaller_id);
    return open;
}

/* The open job of this id; NULL where there is none. */
static inline pacer_open_job *pacer_open_job_of(const pacer_open_jobs *open, uint64_t id) {
    uint32_t from = 0, to = open->len;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (open->at[open->by_id[middle]].job->id < id) from = middle + 1;
        else to = middle;
    }
    if (from == open->len || open->at[open->by_id[from]].job->id != id) return NULL;
    return &open->at[open->by_id[from]];
}

/* What is held: for running jobs, which have their runners; then whoever was first. */
typedef struct { const pacer_reservation *held; bool runs; uint64_t least; } pacer_held;

static inline bool pacer_held_first(const void *all, uint32_t one, uint32_t other) {
    const pacer_held *a = (const pacer_held *)all + one, *b = (const pacer_held *)all + other;
    if (a->runs != b->runs) return a->runs;
    if (a->held->effective != b->held->effective) return a->held->effective < b->held->effective;
    bool names = a->held->jobs.len > 0, names_too = b->held->jobs.len > 0;
    if (names != names_too) return names_too;
    return a->least != b->least ? a->least < b->least : pacer_compare(a->held->id, b->held->id) < 0;
}

static inline pacer_held pacer_holding(const pacer_reservation *held, const pacer_open_jobs *open) {
    pacer_held holding = { held, false, UINT64_MAX };
    for (uint32_t i = 0; i < held->jobs.len; i++) {
        pacer_open_job *found = pacer_open_job_of(open, held->jobs.at[i]);
        holding.runs = holding.runs || (found && pacer_runs(found->job));
        if (held->jobs.at[i] < holding.least) holding.least = held->jobs.at[i];
    }
    return holding;
}

/* Whether the reservation stays, with those of its jobs that are open and that no other reservation has. */
static inline bool pacer_keep_open_jobs(pacer_reservation *held, const pacer_open_jobs *open) {
    if (held->jobs.len == 0) return true;
    pacer_ids kept = { pacer_alloc(held->jobs.len * sizeof(uint64_t), _Alignof(uint64_t)), 0 };
    uint32_t longest = 0;
    for (uint32_t i = 0; i < held->jobs.len; i++) {
        pacer_open_job *found = pacer_open_job_of(open, held->jobs.at[i]);
        if (!found || found->covered) continue;
        found->covered = true;
        kept.at[kept.len++] = found->job->id;
        if (pacer_time_left(found->job) > longest) longest = pacer_time_left(found->job);
    }
    held->jobs = kept;
    held->replicas = kept.len;
    if (longest < held->expires) held->expires = longest;
    return kept.len > 0;
}

static inline pacer_reservation pacer_reserve(const pacer_job *job, pacer_attributes facts) {
    pacer_text key = PACER_TEXT("reservation-seconds"), given = pacer_fact(job->attributes, key), reason;
    uint32_t life = pacer_parsed(given.len > 0 ? given : pacer_fact(facts, key), 600), left = pacer_time_left(job);
    if (life == 0) life = 600;
    pacer_text waited = pacer_duration(job->queued);
    if (pacer_runs(job))
        reason = job->started.some ? pacer_joined(PACER_TEXT("in progress for "), pacer_duration(job->started.value), PACER_TEXT("")) : PACER_TEXT("in progress");
    else if (job->queued >= life) reason = pacer_joined(PACER_TEXT("queued for "), waited, PACER_TEXT(" without a runner, asked again"));
    else reason = pacer_joined(PACER_TEXT("queued "), waited, PACER_TEXT(" ago"));
    pacer_ids jobs = { pacer_alloc(sizeof(uint64_t), _Alignof(uint64_t)), 1 };
    jobs.at[0] = job->id;
    return (pacer_reservation){ pacer_told(PACER_TEXT("job-"), job->id, PACER_TEXT("")), jobs, 1, 0, left < life ? left : life, reason, { 0, 0 } };
}

/* As pacer_one_per_job, without the reservation whose id is `own`: the policy made it and will make it anew. */
static inline pacer_capacity_plan pacer_one_per_job_beside(pacer_text own, const pacer_capacity_request *request) {
    pacer_open_jobs open = pacer_open(request->jobs.at, request->jobs.len);
    uint32_t count = request->reservations.len, len = 0, ahead = 0, soonest = UINT32_MAX;
    pacer_held *held = pacer_alloc(count * sizeof *held, _Alignof(pacer_held));
    for (uint32_t i = 0; i < count; i++) held[i] = pacer_holding(&request->reservations.at[i], &open);
    uint32_t *order = pacer_order(held, count, pacer_held_first);
    pacer_reservation *plan = pacer_alloc((count + open.len) * sizeof *plan, _Alignof(pacer_reservation));
    for (uint32_t i = 0; i < count; i++) {
        pacer_reservation one = *held[order[i]].held;
        if (one.expires == 0 || pacer_compare(one.id, own) == 0) continue;
        bool has_runner = !request->pool.max_replicas.some || ahead < request->pool.max_replicas.value;
        ahead = one.replicas > UINT32_MAX - ahead ? UINT32_MAX : ahead + one.replicas;
        if (!has_runner && one.effective < 0) {
            one.expires += 0u - (uint32_t)one.effective;
            one.effective = 0;
        }
        if (pacer_keep_open_jobs(&one, &open)) plan[len++] = one;
    }
    for (uint32_t i = 0; i < open.len; i++)
        if (!open.at[i].covered && pacer_open_job_of(&open, open.at[i].job->id) == &open.at[i]) plan[len++] = pacer_reserve(open.at[i].job, request->attributes);
    for (uint32_t i = 0; i < len; i++)
        if (plan[i].expires < soonest) soonest = plan[i].expires;
    return (pacer_capacity_plan){ { plan, len }, { false, 0 }, { len > 0, soonest }, { 0, 0 } };
}

/* One runner for each job until it is over, as the shipped policy plans: what is held already stays, what ran out while its job is known is asked for
 * again, and what is beyond the maximum has no runner yet, so its clock starts again. What others reserved without naming jobs stays until it expires. */
static inline pacer_capacity_plan pacer_one_per_job(const pacer_capacity_request *request) { return pacer_one_per_job_beside(PACER_TEXT(""), request); }

/* A line for the operator's log: 0 debug, 1 info, 2 warn. */
__attribute__((import_module("pacer:policy/log@0.1.0"), import_name("write")))
void pacer_log_write(uint32_t level, const char *at, uint32_t len);

#define PACER_STRING_OF(value) #value
#define PACER_STRING(value) PACER_STRING_OF(value)
#define PACER_PANIC_LINE(text) "panic: " text ", at " __FILE__ ":" PACER_STRING(__LINE__)

/* Ends the call. People are shown the text, which has to be a literal, with file and line. */
#define pacer_panic(text) (pacer_log_write(2, PACER_PANIC_LINE(text), sizeof PACER_PANIC_LINE(text) - 1), __builtin_trap())

/* Exports. */

typedef struct {
    pacer_text name, version, summary;
    pacer_option_text settings_schema;
    pacer_attributes attributes;
} pacer_description;

/* Settings are accepted as they are. */
#define PACER_DESCRIBE(name, version, summary)                                                                                     \
    PACER_EXPORT("pacer:policy/lifecycle@0.1.0#describe") const pacer_description *pacer_describe(void) {                         \
        static const pacer_description description = { { name, sizeof(name) - 1 }, { version, sizeof(version) - 1 },              \
                                                       { summary, sizeof(summary) - 1 }, { false, { 0, 0 } }, { 0, 0 } };         \
        return &description;                                                                                                      \
    }                                                                                                                             \
    PACER_EXPORT("pacer:policy/lifecycle@0.1.0#validate-settings") const void *pacer_validate(const char *at, uint32_t len) {     \
        static const struct { bool is_error; PACER_LIST(void) problems; } accepted;                                              \
        (void)at, (void)len;                                                                                                      \
        return &accepted;                                                                                                         \
    }

#define PACER_DECISION(name, function, request_type, answer_type, exported)                                                       \
    PACER_EXPORT(name) answer_type *exported(const request_type *request) {                                                       \
        answer_type *answer = pacer_alloc(sizeof *answer, _Alignof(answer_type));                                                 \
        *answer = function(request);                                                                                              \
        return answer;                                                                                                            \
    }

#define PACER_SCALE_DOWN(function) \
    PACER_DECISION("pacer:policy/scale-down@0.1.0#select", function, pacer_scale_down_request, pacer_choices, pacer_select)
#define PACER_RESTART(function) \
    PACER_DECISION("pacer:policy/restart@0.1.0#decide", function, pacer_restart_request, pacer_verdicts, pacer_decide)
#define PACER_CAPACITY(function) \
    PACER_DECISION("pacer:policy/capacity@0.1.0#plan", function, pacer_capacity_request, pacer_plan, pacer_make_plan)
#define PACER_RECOVER(function) \
    PACER_DECISION("pacer:policy/recover@0.2.0#decide", function, pacer_recover_request, pacer_verdicts, pacer_recover)

_Static_assert(sizeof(pacer_scale_down_request) == 216 && sizeof(pacer_candidate) == 44 && sizeof(pacer_choice) == 20, "wasm32 only");

#endif
