//! Which idle runners go first: the youngest, because the caches of the old ones are warm.
const std = @import("std");
const pacer = @import("pacer.zig");

pub const panic = pacer.panic;

const Settings = struct {
    /// Keeps runners that have been idle for less.
    minIdleSeconds: u32 = 0,
};

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

comptime {
    pacer.describe("newest-first", "0.1.0", "Removes the youngest runners and keeps those with warm caches", Settings);
    pacer.scaleDown(Settings, select);
}
