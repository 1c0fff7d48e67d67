// SPDX-License-Identifier: Apache-2.0
//! The contract pacer:policy@0.1.0, and recover of 0.2.0, for Zig: the structs lie in memory exactly as the host writes and reads them on wasm32.
//! What the fields mean is in wit/policy/v0.2.0/policy.wit.
//!
//! A policy is one function and its settings, a struct with a default for every field:
//!
//!     const Settings = struct { minIdleSeconds: u32 = 0 };
//!     fn select(request: *const pacer.ScaleDownRequest, settings: Settings) pacer.Refused![]const pacer.Choice { ... }
//!     comptime {
//!         pacer.describe("name", "0.1.0", "one line", Settings);
//!         pacer.scaleDown(Settings, select);
//!     }
//!
//! Every call gets a fresh instance, so nothing has to be freed.
const std = @import("std");

/// Memory that lasts until the end of the call: its end is moved, and never moved back.
pub const allocator: std.mem.Allocator = .{ .ptr = undefined, .vtable = &.{ .alloc = extend, .resize = std.mem.Allocator.noResize, .remap = std.mem.Allocator.noRemap, .free = std.mem.Allocator.noFree } };

var next: usize = 0;

fn extend(_: *anyopaque, len: usize, alignment: std.mem.Alignment, _: usize) ?[*]u8 {
    if (next == 0) next = @wasmMemorySize(0) << 16;
    const at = alignment.forward(next);
    const there = @wasmMemorySize(0) << 16;
    if (at + len > there and @wasmMemoryGrow(0, (at + len - there + 0xffff) >> 16) < 0) return null;
    next = at + len;
    return @ptrFromInt(at);
}

/// With an error there is no answer: the shipped policy decides, and people read what `refuse` was given.
pub const Refused = error{Refused};

pub fn List(comptime Item: type) type {
    return extern struct {
        at: [*]const Item,
        len: u32,

        pub fn of(items: []const Item) @This() {
            // A slice of nothing may point anywhere, and the host reads only what points into memory.
            const at: [*]const Item = if (items.len == 0) @ptrFromInt(@alignOf(Item)) else items.ptr;
            return .{ .at = at, .len = @intCast(items.len) };
        }

        pub fn slice(list: @This()) []const Item {
            return list.at[0..list.len];
        }
    };
}

pub fn Option(comptime Value: type) type {
    return extern struct {
        some: bool = false,
        value: Value = undefined,

        pub fn get(option: @This()) ?Value {
            return if (option.some) option.value else null;
        }

        pub fn of(value: ?Value) @This() {
            return if (value) |given| .{ .some = true, .value = given } else .{};
        }
    };
}

pub const Text = List(u8);
pub const Attribute = extern struct { key: Text, value: Text };
pub const Attributes = List(Attribute);

pub const Counts = extern struct { pending: u32, starting: u32, idle: u32, busy: u32, stopping: u32 };
pub const Quantiles = extern struct { samples: u32, p50: u32, p90: u32, p99: u32 };
pub const ApiBudget = extern struct { limit: u32, remaining: u32, resets_in: u32 };

pub const Pool = extern struct {
    namespace: Text,
    name: Text,
    kind: Text,
    labels: List(Text),
    min_replicas: Option(u32),
    max_replicas: Option(u32),
    desired: u32,
    counts: Counts,
    last_scale_up: Option(u32),
    last_scale_down: Option(u32),
    revision: Text,
    ephemeral: bool,
    budget: Option(ApiBudget),
    start_time: Option(Quantiles),
    run_time: Option(Quantiles),
    arrivals: List(u32),
    attributes: Attributes,
};

pub const Node = extern struct {
    name: Text,
    runners: u32,
    busy: u32,
    draining: bool,
    age: Option(u32),
    attributes: Attributes,
};

// Which idle runners go first.

pub const Candidate = extern struct {
    name: Text,
    idle: u32,
    age: u32,
    node: Option(u32),
    current: bool,
    last_job_end: Option(u32),
    attributes: Attributes,
};

pub const ScaleDownRequest = extern struct {
    now: f64,
    settings: Text,
    pool: Pool,
    nodes: List(Node),
    candidates: List(Candidate),
    surplus: u32,
    attributes: Attributes,
};

pub const Choice = extern struct {
    index: u32,
    reason: Text,
    attributes: Attributes = .of(&.{}),
};

// What to do about a runner that ended, never registered, or went missing.

pub const Subject = extern struct {
    name: Text,
    situation: Text,
    cause: Text,
    exit_code: Option(i32),
    message: Text,
    github: Text,
    was_registered: bool,
    since: u32,
    age: u32,
    attempts: u32,
    ephemeral: bool,
    stand_alone: bool,
    current: bool,
    node: Option(u32),
    attributes: Attributes,
};

pub const RestartRequest = extern struct {
    now: f64,
    settings: Text,
    pool: Pool,
    nodes: List(Node),
    subjects: List(Subject),
    attributes: Attributes,
};

pub const Verdict = extern struct {
    index: u32,
    action: Text,
    /// Seconds: for look-again 5 to 600, 60 if there is none; for recreate and replace 0 to 600 since the runner got into its situation. The
    /// operator changes a number outside these bounds to the nearest bound.
    after: Option(u32) = .{},
    reason: Text,
    attributes: Attributes = .of(&.{}),
};

// How much capacity to hold for which jobs until when.

pub const Job = extern struct {
    id: u64,
    state: Text,
    queued: u32,
    started: Option(u32),
    repository: Text,
    workflow: Text,
    labels: List(Text),
    attempt: u32,
    runner: Option(Text),
    attributes: Attributes,
};

pub const Reservation = extern struct {
    id: Text,
    jobs: List(u64),
    replicas: u32,
    effective: i32,
    expires: u32,
    reason: Text,
    attributes: Attributes = .of(&.{}),
};

pub const CapacityRequest = extern struct {
    now: f64,
    settings: Text,
    pool: Pool,
    jobs: List(Job),
    reservations: List(Reservation),
    attributes: Attributes,
};

pub const Plan = extern struct {
    reservations: List(Reservation),
    ceiling: Option(u32) = .{},
    look_again: Option(u32) = .{},
    attributes: Attributes = .of(&.{}),
};

// Whether a job that died with its runner shall run again. The answer is verdicts with the actions rerun and leave.

pub const DeadJob = extern struct {
    id: u64,
    run: Option(u64),
    attempt: u32,
    repository: Text,
    workflow: Text,
    labels: List(Text),
    runner: Text,
    cause: Text,
    message: Text,
    since: u32,
    ran: u32,
    recoveries: u32,
    node: Option(u32),
    attributes: Attributes,
};

pub const RecoverRequest = extern struct {
    now: f64,
    settings: Text,
    pool: Pool,
    nodes: List(Node),
    jobs: List(DeadJob),
    attributes: Attributes,
};

/// A further fact; none where there is none of this key.
pub fn attribute(facts: Attributes, key: []const u8) ?[]const u8 {
    for (facts.slice()) |fact| if (std.mem.eql(u8, fact.key.slice(), key)) return fact.value.slice();
    return null;
}

/// The indices of things, ordered: `before(items, one, other)` says which of two is first.
pub fn order(comptime Item: type, items: []const Item, comptime before: fn ([]const Item, u32, u32) bool) []u32 {
    const indices = allocator.alloc(u32, items.len) catch @trap();
    for (indices, 0..) |*index, place| index.* = @intCast(place);
    std.sort.heap(u32, indices, items, before);
    return indices;
}

/// A duration for people: `45 s`, `14 min`, `2 h 5 min`, `3 d 4 h`; the second unit is left out when it is zero.
pub fn duration(seconds: u32) []const u8 {
    if (seconds < 60) return told("{d} s", .{seconds});
    if (seconds < 3600) return told("{d} min", .{seconds / 60});
    if (seconds < 86_400) {
        const minutes = seconds % 3600 / 60;
        return if (minutes == 0) told("{d} h", .{seconds / 3600}) else told("{d} h {d} min", .{ seconds / 3600, minutes });
    }
    const hours = seconds % 86_400 / 3600;
    return if (hours == 0) told("{d} d", .{seconds / 86_400}) else told("{d} d {d} h", .{ seconds / 86_400, hours });
}

/// One runner for each job until it is over, as the shipped policy plans: what is held already stays, what ran out while its job is known is asked for
/// again, and what is beyond the maximum has no runner yet, so its clock starts again. What others reserved without naming jobs stays until it expires.
pub fn onePerJob(request: *const CapacityRequest) Plan {
    return onePerJobBeside("", request);
}

/// As `onePerJob`, without the reservation whose id is `own`: the policy made it and will make it anew.
pub fn onePerJobBeside(own: []const u8, request: *const CapacityRequest) Plan {
    const open = OpenJobs.of(request.jobs.slice());
    const plan = allocator.alloc(Reservation, request.reservations.len + open.jobs.len) catch @trap();
    var count: usize = 0;
    var ahead: u32 = 0;
    for (inOrder(request.reservations.slice(), open)) |reservation| {
        var held = reservation.*;
        if (held.expires == 0 or std.mem.eql(u8, held.id.slice(), own)) continue;
        const waits = if (request.pool.max_replicas.get()) |max| ahead >= max else false;
        ahead +|= held.replicas;
        if (waits) {
            held.expires +|= @abs(@min(held.effective, 0));
            held.effective = @max(held.effective, 0);
        }
        if (!keepOpenJobs(&held, open)) continue;
        plan[count] = held;
        count += 1;
    }
    for (open.jobs, 0..) |*each, place| {
        if (each.covered or open.find(each.job.id) != &open.jobs[place]) continue;
        plan[count] = reserve(each.job, request.attributes);
        count += 1;
    }
    var soonest: ?u32 = null;
    for (plan[0..count]) |held| soonest = @min(soonest orelse held.expires, held.expires);
    return .{ .reservations = .of(plan[0..count]), .look_again = .of(soonest) };
}

const OpenJob = struct { job: *const Job, covered: bool = false };

/// Jobs that nobody heard the end of: in progress before queued, then the one that was queued first.
const OpenJobs = struct {
    jobs: []OpenJob,
    /// Their places, in the order of their ids.
    by_id: []u32,

    fn of(all: []const Job) OpenJobs {
        const jobs = allocator.alloc(OpenJob, all.len) catch @trap();
        var count: usize = 0;
        for (order(Job, all, firstCome)) |index| {
            if (timeLeft(&all[index]) == 0) continue;
            jobs[count] = .{ .job = &all[index] };
            count += 1;
        }
        return .{ .jobs = jobs[0..count], .by_id = order(OpenJob, jobs[0..count], smallerId) };
    }

    fn firstCome(all: []const Job, one: u32, other: u32) bool {
        const a = &all[one];
        const b = &all[other];
        if (runs(a) != runs(b)) return runs(a);
        return if (a.queued != b.queued) a.queued > b.queued else a.id < b.id;
    }

    fn smallerId(all: []const OpenJob, one: u32, other: u32) bool {
        const a = all[one].job.id;
        const b = all[other].job.id;
        return if (a != b) a < b else one < other;
    }

    fn find(open: OpenJobs, id: u64) ?*OpenJob {
        var from: usize = 0;
        var to: usize = open.by_id.len;
        while (from < to) {
            const middle = from + (to - from) / 2;
            if (open.jobs[open.by_id[middle]].job.id < id) from = middle + 1 else to = middle;
        }
        if (from == open.by_id.len) return null;
        const found = &open.jobs[open.by_id[from]];
        return if (found.job.id == id) found else null;
    }
};

const Held = struct { reservation: *const Reservation, runs: bool, least: ?u64 };

/// Running jobs have their runners; then whoever was first.
fn inOrder(reservations: []const Reservation, open: OpenJobs) []const *const Reservation {
    const all = allocator.alloc(Held, reservations.len) catch @trap();
    for (all, reservations) |*held, *reservation| {
        held.* = .{ .reservation = reservation, .runs = false, .least = null };
        for (reservation.jobs.slice()) |id| {
            if (open.find(id)) |found| held.runs = held.runs or runs(found.job);
            held.least = @min(held.least orelse id, id);
        }
    }
    const ordered = allocator.alloc(*const Reservation, all.len) catch @trap();
    for (ordered, order(Held, all, heldFirst)) |*reservation, index| reservation.* = all[index].reservation;
    return ordered;
}

fn heldFirst(all: []const Held, one: u32, other: u32) bool {
    const a = all[one];
    const b = all[other];
    if (a.runs != b.runs) return a.runs;
    if (a.reservation.effective != b.reservation.effective) return a.reservation.effective < b.reservation.effective;
    if ((a.least == null) != (b.least == null)) return a.least == null;
    if (a.least != null and a.least.? != b.least.?) return a.least.? < b.least.?;
    return std.mem.lessThan(u8, a.reservation.id.slice(), b.reservation.id.slice());
}

/// Whether the reservation stays, with those of its jobs that are open and that no other reservation has.
fn keepOpenJobs(held: *Reservation, open: OpenJobs) bool {
    if (held.jobs.len == 0) return true;
    const kept = allocator.alloc(u64, held.jobs.len) catch @trap();
    var count: usize = 0;
    var longest: u32 = 0;
    for (held.jobs.slice()) |id| {
        const found = open.find(id) orelse continue;
        if (found.covered) continue;
        found.covered = true;
        kept[count] = id;
        count += 1;
        longest = @max(longest, timeLeft(found.job));
    }
    held.jobs = .of(kept[0..count]);
    held.replicas = @intCast(count);
    held.expires = @min(held.expires, longest);
    return count > 0;
}

fn reserve(job: *const Job, facts: Attributes) Reservation {
    const given = attribute(job.attributes, "reservation-seconds") orelse attribute(facts, "reservation-seconds") orelse "600";
    const parsed = std.fmt.parseInt(u32, given, 10) catch 0;
    const life = if (parsed == 0) 600 else parsed;
    const reason: Text = if (runs(job))
        if (job.started.get()) |started| text("in progress for {s}", .{duration(started)}) else .of("in progress")
    else if (job.queued >= life)
        text("queued for {s} without a runner, asked again", .{duration(job.queued)})
    else
        text("queued {s} ago", .{duration(job.queued)});
    return .{
        .id = text("job-{d}", .{job.id}),
        .jobs = .{ .at = @ptrCast(&job.id), .len = 1 },
        .replicas = 1,
        .effective = 0,
        .expires = @min(life, timeLeft(job)),
        .reason = reason,
    };
}

fn runs(job: *const Job) bool {
    return std.mem.eql(u8, job.state.slice(), "in-progress");
}

/// Seconds until a job is given up: a day in the queue and five days in progress are GitHub's own limits.
fn timeLeft(job: *const Job) u32 {
    if (std.mem.eql(u8, job.state.slice(), "completed")) return 0;
    return if (runs(job)) 432_000 -| (job.started.get() orelse 0) else 86_400 -| job.queued;
}

fn told(comptime format: []const u8, values: anytype) []const u8 {
    return std.fmt.allocPrint(allocator, format, values) catch @trap();
}

/// A line of text, as `std.fmt` makes it.
pub fn text(comptime format: []const u8, values: anytype) Text {
    return .of(told(format, values));
}

/// Declines to decide, and says why.
pub fn refuse(why: Text) Refused {
    refusal = why;
    return error.Refused;
}

var refusal: Text = .of("");

pub const Level = enum(u32) { debug, info, warn };

/// A line for the operator's log.
pub fn log(level: Level, line: Text) void {
    write(@intFromEnum(level), line.at, line.len);
}

extern "pacer:policy/log@0.1.0" fn write(level: u32, at: [*]const u8, len: u32) void;

/// Has people shown what a panic says, where the root file of the policy has `pub const panic = pacer.panic;`.
pub const panic = std.debug.FullPanic(tell);

fn tell(message: []const u8, _: ?usize) noreturn {
    log(.warn, text("panic: {s}", .{message}));
    @trap();
}

fn Result(comptime Answer: type) type {
    return extern struct {
        is_error: bool,
        payload: extern union { answer: Answer, refusal: Text },
    };
}

/// Names the policy. Settings that are not those of `Settings` are refused with the field.
pub fn describe(comptime name: []const u8, comptime version: []const u8, comptime summary: []const u8, comptime Settings: type) void {
    const Description = extern struct { name: Text, version: Text, summary: Text, schema: Option(Text) = .{}, attributes: Attributes = .of(&.{}) };
    const Problem = extern struct { path: Text, message: Text };
    const Validated = extern struct { is_error: bool, problems: List(Problem) };
    const exported = struct {
        var description: Description = undefined;
        var validated: Validated = undefined;
        var problem: [1]Problem = undefined;

        fn describePolicy() callconv(.c) *const Description {
            description = .{ .name = .of(name), .version = .of(version), .summary = .of(summary) };
            return &description;
        }

        fn validate(at: [*]const u8, len: u32) callconv(.c) *const Validated {
            validated = .{ .is_error = false, .problems = .of(&.{}) };
            _ = read(Settings, at[0..len]) catch {
                problem[0] = .{ .path = .of(""), .message = refusal };
                validated = .{ .is_error = true, .problems = .of(&problem) };
            };
            return &validated;
        }
    };
    @export(&exported.describePolicy, .{ .name = "pacer:policy/lifecycle@0.1.0#describe" });
    @export(&exported.validate, .{ .name = "pacer:policy/lifecycle@0.1.0#validate-settings" });
}

/// Exports `function(*const ScaleDownRequest, Settings) Refused![]const Choice`.
pub fn scaleDown(comptime Settings: type, comptime function: anytype) void {
    decision("pacer:policy/scale-down@0.1.0#select", ScaleDownRequest, List(Choice), Settings, function);
}

/// Exports `function(*const RestartRequest, Settings) Refused![]const Verdict`.
pub fn restart(comptime Settings: type, comptime function: anytype) void {
    decision("pacer:policy/restart@0.1.0#decide", RestartRequest, List(Verdict), Settings, function);
}

/// Exports `function(*const CapacityRequest, Settings) Refused!Plan`.
pub fn capacity(comptime Settings: type, comptime function: anytype) void {
    decision("pacer:policy/capacity@0.1.0#plan", CapacityRequest, Plan, Settings, function);
}

/// Exports `function(*const RecoverRequest, Settings) Refused![]const Verdict`.
pub fn recover(comptime Settings: type, comptime function: anytype) void {
    decision("pacer:policy/recover@0.2.0#decide", RecoverRequest, List(Verdict), Settings, function);
}

fn decision(comptime name: []const u8, comptime Request: type, comptime Answer: type, comptime Settings: type, comptime function: anytype) void {
    const exported = struct {
        var result: Result(Answer) = undefined;

        fn call(request: *const Request) callconv(.c) *const Result(Answer) {
            if (answer(request)) |given| {
                result = .{ .is_error = false, .payload = .{ .answer = given } };
            } else |_| {
                result = .{ .is_error = true, .payload = .{ .refusal = refusal } };
            }
            return &result;
        }

        fn answer(request: *const Request) Refused!Answer {
            const given = try function(request, try read(Settings, request.settings.slice()));
            return if (Answer == Plan) given else .of(given);
        }
    };
    @export(&exported.call, .{ .name = name });
}

fn read(comptime Settings: type, json: []const u8) Refused!Settings {
    if (json.len == 0) return .{};
    var diagnostics: std.json.Diagnostics = .{};
    var scanner = std.json.Scanner.initCompleteInput(allocator, json);
    scanner.enableDiagnostics(&diagnostics);
    return std.json.parseFromTokenSourceLeaky(Settings, allocator, &scanner, .{}) catch |failed|
        refuse(text("settings are not usable: {s} at column {d}", .{ @errorName(failed), diagnostics.getColumn() }));
}

export fn cabi_realloc(old: ?[*]u8, old_len: usize, alignment: usize, len: usize) ?[*]u8 {
    const new = allocator.rawAlloc(len, .fromByteUnits(alignment), @returnAddress()) orelse @trap();
    if (old) |from| @memcpy(new[0..@min(old_len, len)], from[0..@min(old_len, len)]);
    return new;
}

comptime {
    if (@sizeOf(ScaleDownRequest) != 216 or @sizeOf(Candidate) != 44 or @sizeOf(Choice) != 20) @compileError("wasm32 only");
}
