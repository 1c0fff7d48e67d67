//! Which idle runners go first: the youngest, because the caches of the old ones are warm.
const std = @import("std");
const pacer = @import("pacer.zig");

const Settings = struct {
    /// Keeps runners that have been idle for less.
    minIdleSeconds: u32 = 0,
};

fn select(request: *const pacer.ScaleDownRequest, settings: Settings) pacer.Refused![]const pacer.Choice {
    const all = request.candidates.slice();
    const order = pacer.allocator.alloc(u32, all.len) catch @trap();
    var ready: usize = 0;
    for (all, 0..) |runner, index| {
        if (runner.idle < settings.minIdleSeconds) continue;
        order[ready] = @intCast(index);
        ready += 1;
    }
    std.sort.heap(u32, order[0..ready], all, goesBefore);
    const choices = pacer.allocator.alloc(pacer.Choice, @min(ready, request.surplus)) catch @trap();
    for (choices, order[0..choices.len]) |*choice, index| {
        choice.* = .{ .index = index, .reason = pacer.text("{d} s old", .{all[index].age}) };
    }
    return choices;
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
