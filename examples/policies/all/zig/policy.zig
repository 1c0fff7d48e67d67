//! All four decisions. The last lines export them: delete those that the shipped policy shall go on making.
const std = @import("std");
const pacer = @import("pacer.zig");

pub const panic = pacer.panic;

const Settings = struct {
    /// Keeps runners that have been idle for less.
    minIdleSeconds: u32 = 0,
};

/// Which idle runners go first: the youngest, because the caches of the old ones are warm.
fn select(request: *const pacer.ScaleDownRequest, settings: Settings) pacer.Refused![]const pacer.Choice {
    const all = request.candidates.slice();
    const choices = pacer.allocator.alloc(pacer.Choice, @min(all.len, request.surplus)) catch @trap();
    var chosen: usize = 0;
    for (pacer.order(pacer.Candidate, all, goesBefore)) |index| {
        if (chosen == choices.len) break;
        if (all[index].idle < settings.minIdleSeconds) continue;
        choices[chosen] = .{ .index = index, .reason = pacer.text("{d} s old", .{all[index].age}) };
        chosen += 1;
    }
    return choices[0..chosen];
}

fn goesBefore(all: []const pacer.Candidate, one: u32, other: u32) bool {
    const a = all[one];
    const b = all[other];
    return if (a.age != b.age) a.age < b.age else std.mem.lessThan(u8, a.name.slice(), b.name.slice());
}

/// What to do about runners that ended or failed: others take their places, later after each failure.
fn decide(request: *const pacer.RestartRequest, _: Settings) pacer.Refused![]const pacer.Verdict {
    const verdicts = pacer.allocator.alloc(pacer.Verdict, request.subjects.len) catch @trap();
    for (verdicts, request.subjects.slice(), 0..) |*verdict, subject, place| {
        const index: u32 = @intCast(place);
        verdict.* = if (std.mem.eql(u8, subject.cause.slice(), "completed"))
            .{ .index = index, .action = .of("replace"), .reason = .of("its job is done") }
        else if (subject.attempts > 5)
            .{ .index = index, .action = .of("quarantine"), .reason = pacer.text("{d} attempts failed", .{subject.attempts}) }
        else
            .{ .index = index, .action = .of("replace"), .after = .of(10 * subject.attempts), .reason = subject.cause };
    }
    return verdicts;
}

/// How much capacity to hold: one runner for each job. Add reservations of your own to it.
fn plan(request: *const pacer.CapacityRequest, _: Settings) pacer.Refused!pacer.Plan {
    return pacer.onePerJob(request);
}

/// Which jobs that died with their runners run again: once, where their place was taken away.
fn again(request: *const pacer.RecoverRequest, _: Settings) pacer.Refused![]const pacer.Verdict {
    const verdicts = pacer.allocator.alloc(pacer.Verdict, request.jobs.len) catch @trap();
    for (verdicts, request.jobs.slice(), 0..) |*verdict, job, index| {
        const rerun = job.attempt == 1 and wasTaken(job.cause.slice());
        verdict.* = .{
            .index = @intCast(index),
            .action = if (rerun) .of("rerun") else .of("leave"),
            .reason = if (job.attempt > 1) pacer.text("attempt {d} of its run", .{job.attempt}) else job.cause,
        };
    }
    return verdicts;
}

fn wasTaken(cause: []const u8) bool {
    for ([_][]const u8{ "node-lost", "evicted", "preempted" }) |taken| if (std.mem.eql(u8, cause, taken)) return true;
    return false;
}

comptime {
    pacer.describe("newest-first", "0.1.0", "Makes all four decisions, and removes the youngest runners first", Settings);
    pacer.scaleDown(Settings, select);
    pacer.restart(Settings, decide);
    pacer.capacity(Settings, plan);
    pacer.recover(Settings, again);
}
