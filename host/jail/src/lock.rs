//! What is taken away from a child before it reads the first byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetStatus, Scope};
use pacer_policy::protocol::{Locks, Role};
use rustix::param::page_size;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, apply_filter_all_threads,
};

/// Address space that a stager may take beyond what the program itself has, in bytes: what the largest component that is accepted takes to
/// compile, with room.
const STAGER_BYTES: u64 = 320 << 20;

/// The same of a runner: native code of many policies, one guest with the most memory that may be asked for, and that memory once more while
/// it grows.
const RUNNER_BYTES: u64 = 256 << 20;

/// Processor time of a stager in seconds. The kernel kills it then.
const STAGER_SECONDS: u64 = 20;

/// The same of the process that compiles the interpreter of texts, which no user has written: several times what a build without optimisation
/// takes for that.
const INTERPRETER_SECONDS: u64 = 60;

/// Descriptors where the kernel has no seccomp: one of each policy, and the socket.
const FILES: u64 = 1_024;

/// Largest file in memory there, in bytes: what a module may bring.
const FILE_BYTES: u64 = 16 << 20;

/// Whether the process that started this one left more open than the first three descriptors. Reading and writing them is denied all the same.
pub(crate) fn inherited() -> Option<bool> {
    let open = fs::read_dir("/proc/self/fd").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // The listing itself has one.
    Some(open.filter(|descriptor| *descriptor > 2).count() > 1)
}

/// Limits, and everything that binds a thread and those that it starts.
pub(crate) fn before_threads(role: Role) -> Locks {
    // The kernel's choice when memory is short; without the right to say so it is as likely as any other process.
    let _unchanged = fs::write("/proc/self/oom_score_adj", "1000");
    let limits = memory(role).is_some_and(|bytes| limit(Resource::As, bytes))
        && processor_time(role).is_none_or(|seconds| limit(Resource::Cpu, seconds))
        && limit(Resource::Core, 0)
        // Other processes of the same user can't trace it or read its memory.
        && set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    Locks { landlock: no_files(), seccomp: false, limits }
}

/// What binds all threads, once they are there.
pub(crate) fn with_threads(locks: &mut Locks, socket: BorrowedFd<'_>) {
    // What a memory begins with lies in a file in memory, unless the kernel says that it has none.
    let (files, bytes) = if no_files_in_memory().is_some() { (0, 0) } else { (FILES, FILE_BYTES) };
    locks.limits &= limit(Resource::Nofile, files) && limit(Resource::Fsize, bytes) && limit(Resource::Nproc, 0);
    locks.seccomp = only_computing(socket).is_some();
}

fn limit(resource: Resource, most: u64) -> bool {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).is_ok()
}

fn memory(role: Role) -> Option<u64> {
    let more = match role {
        Role::Runner | Role::SurplusRunner => RUNNER_BYTES,
        Role::Stager | Role::Interpreter | Role::Probe => STAGER_BYTES,
    };
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().next()?.parse().ok()?;
    Some(pages.saturating_mul(u64::try_from(page_size()).ok()?).saturating_add(more))
}

/// None where a child lives for long; the deadline of each call is watched from outside.
fn processor_time(role: Role) -> Option<u64> {
    match role {
        Role::Runner | Role::SurplusRunner => None,
        Role::Stager | Role::Probe => Some(STAGER_SECONDS),
        Role::Interpreter => Some(INTERPRETER_SECONDS),
    }
}

/// No file, no TCP port, no signal: Landlock with no rule that allows anything.
fn no_files() -> bool {
    let nothing = || {
        let ruleset =
            Ruleset::default().handle_access(AccessFs::from_all(ABI::V6))?.handle_access(AccessNet::from_all(ABI::V6))?;
        ruleset.scope(Scope::from_all(ABI::V6))?.create()?.restrict_self()
    };
    nothing().is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

/// System calls of a computation that reads and writes what is open already. No other thread or process, and no memory that can be written and
/// executed.
fn only_computing(socket: BorrowedFd<'_>) -> Option<()> {
    let always = [
        libc::SYS_close,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigaction,
        libc::SYS_sigaltstack,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_getpid,
        // The other filter answers it.
        libc::SYS_memfd_create,
        // Makes new code visible to all processors of an arm64.
        libc::SYS_membarrier,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    // An empty list of rules matches always.
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = always.into_iter().map(|call| (call, Vec::new())).collect();
    // PROT_WRITE is 2 and PROT_EXEC is 4: one rule for each permitted combination.
    let protection = |value: u64| SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(6), value).ok();
    // No descriptor: -1. What is open must not be read by mapping it.
    let anonymous = || SeccompCondition::new(4, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(u32::MAX)).ok();
    let mapping = |value| SeccompRule::new(vec![protection(value)?, anonymous()?]).ok();
    let protecting = |value| SeccompRule::new(vec![protection(value)?]).ok();
    rules.insert(libc::SYS_mmap, [0, 2].map(mapping).into_iter().collect::<Option<_>>()?);
    rules.insert(libc::SYS_mprotect, [0, 2, 4].map(protecting).into_iter().collect::<Option<_>>()?);
    // An abort is a signal to itself.
    rules.insert(libc::SYS_tgkill, vec![first_is(u64::from(std::process::id()))?]);
    // Whatever else is open: it was inherited, and is not ours.
    let socket = u64::try_from(socket.as_raw_fd()).ok()?;
    rules.insert(libc::SYS_read, vec![first_is(socket)?]);
    rules.insert(libc::SYS_write, vec![first_is(socket)?]);
    apply(rules, SeccompAction::Errno(u32::try_from(libc::EPERM).ok()?), SeccompAction::Allow)
}

/// The engine copies what a memory begins with where the kernel is too old for files in memory, and fails where they are denied.
fn no_files_in_memory() -> Option<()> {
    let absent = BTreeMap::from([(libc::SYS_memfd_create, Vec::new())]);
    apply(absent, SeccompAction::Allow, SeccompAction::Errno(u32::try_from(libc::ENOSYS).ok()?))
}

/// Adds a filter to those of all threads; of what they answer to a call, the strictest holds.
fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, others: SeccompAction, matched: SeccompAction) -> Option<()> {
    let filter = SeccompFilter::new(rules, others, matched, std::env::consts::ARCH.try_into().ok()?).ok()?;
    let program: seccompiler::BpfProgram = filter.try_into().ok()?;
    apply_filter_all_threads(&program).ok()
}

/// A call whose first argument is this number.
fn first_is(value: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).ok()?]).ok()
}
