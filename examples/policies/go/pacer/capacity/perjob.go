// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"newest-first/pacer"
)

// OnePerJob holds one runner for each job until it is over, as the shipped policy plans: what is held already stays, what ran out while its job is known
// is asked for again, and what is beyond the maximum has no runner yet, so its clock starts again. What others reserved without naming jobs stays until
// it expires.
func OnePerJob(request Request) Plan { return OnePerJobBeside("", request) }

// OnePerJobBeside is OnePerJob without the reservation whose ID is own: the policy made it and will make it anew.
func OnePerJobBeside(own string, request Request) Plan {
	open, uncovered := openJobs(request.Jobs)
	var plan Plan
	var ahead uint64
	for _, held := range inOrder(request.Reservations, uncovered) {
		if held.Expires == 0 || held.ID == own {
			continue
		}
		waits := request.Pool.MaxReplicas != nil && ahead >= uint64(*request.Pool.MaxReplicas)
		ahead += uint64(held.Replicas)
		if waits {
			held.Expires += uint32(-min(held.Effective, 0))
			held.Effective = max(held.Effective, 0)
		}
		if keepOpenJobs(&held, uncovered) {
			plan.Reservations = append(plan.Reservations, held)
		}
	}
	for _, job := range open {
		if _, waits := uncovered[job.ID]; waits {
			plan.Reservations = append(plan.Reservations, reserve(job, request.Attributes))
			delete(uncovered, job.ID)
		}
	}
	for _, held := range plan.Reservations {
		if plan.LookAgain == nil || held.Expires < *plan.LookAgain {
			plan.LookAgain = &held.Expires
		}
	}
	return plan
}

// openJobs are the jobs whose end nobody was told of: in progress before queued, then the one that was queued first. By their IDs as well.
func openJobs(jobs []Job) (inOrder []Job, byID map[uint64]Job) {
	byID = make(map[uint64]Job, len(jobs))
	for _, index := range pacer.Ordered(jobs, func(one, other Job) int {
		return cmp.Or(first(runs(one), runs(other)), cmp.Compare(other.Queued, one.Queued), cmp.Compare(one.ID, other.ID))
	}) {
		job := jobs[index]
		if _, twice := byID[job.ID]; timeLeft(job) > 0 && !twice {
			inOrder = append(inOrder, job)
			byID[job.ID] = job
		}
	}
	return inOrder, byID
}

// inOrder are running jobs, which have their runners; then whoever was first.
func inOrder(reservations []Reservation, open map[uint64]Job) []Reservation {
	forRunning := make([]bool, len(reservations))
	indices := make([]int, len(reservations))
	for index, held := range reservations {
		indices[index] = index
		forRunning[index] = slices.ContainsFunc(held.Jobs, func(id uint64) bool { job, there := open[id]; return there && runs(job) })
	}
	least := func(held Reservation) uint64 {
		if len(held.Jobs) == 0 {
			return 0
		}
		return slices.Min(held.Jobs)
	}
	slices.SortFunc(indices, func(a, b int) int {
		one, other := reservations[a], reservations[b]
		return cmp.Or(
			first(forRunning[a], forRunning[b]), cmp.Compare(one.Effective, other.Effective), first(len(one.Jobs) == 0, len(other.Jobs) == 0),
			cmp.Compare(least(one), least(other)), strings.Compare(one.ID, other.ID),
		)
	})
	ordered := make([]Reservation, 0, len(reservations))
	for _, index := range indices {
		ordered = append(ordered, reservations[index])
	}
	return ordered
}

// first puts what is so before what is not.
func first(one, other bool) int {
	switch {
	case one == other:
		return 0
	case one:
		return -1
	default:
		return 1
	}
}

// keepOpenJobs says whether a reservation stays, with those of its jobs that are open and that no other reservation has.
func keepOpenJobs(held *Reservation, uncovered map[uint64]Job) bool {
	if len(held.Jobs) == 0 {
		return true
	}
	var kept []uint64
	longest := uint32(0)
	for _, id := range held.Jobs {
		if job, there := uncovered[id]; there {
			delete(uncovered, id)
			kept = append(kept, id)
			longest = max(longest, timeLeft(job))
		}
	}
	held.Jobs, held.Replicas, held.Expires = kept, uint32(len(kept)), min(held.Expires, longest)
	return len(kept) > 0
}

func reserve(job Job, facts []pacer.Attribute) Reservation {
	given, there := pacer.Fact(job.Attributes, "reservation-seconds")
	if !there {
		given, _ = pacer.Fact(facts, "reservation-seconds")
	}
	life := uint32(600)
	if seconds, err := strconv.ParseUint(given, 10, 32); err == nil && seconds > 0 {
		life = uint32(seconds)
	}
	reason := "queued " + pacer.Duration(job.Queued) + " ago"
	switch {
	case runs(job) && job.Started != nil:
		reason = "in progress for " + pacer.Duration(*job.Started)
	case runs(job):
		reason = "in progress"
	case job.Queued >= life:
		reason = "queued for " + pacer.Duration(job.Queued) + " without a runner, asked again"
	}
	id := "job-" + strconv.FormatUint(job.ID, 10)
	return Reservation{ID: id, Jobs: []uint64{job.ID}, Replicas: 1, Expires: min(life, timeLeft(job)), Reason: reason}
}

func runs(job Job) bool { return job.State == "in-progress" }

// timeLeft are the seconds until a job is given up: a day in the queue and five days in progress are GitHub's own limits.
func timeLeft(job Job) uint32 {
	limit, spent := uint32(86_400), job.Queued
	switch {
	case job.State == "completed":
		return 0
	case runs(job):
		limit, spent = 432_000, 0
		if job.Started != nil {
			spent = *job.Started
		}
	}
	return limit - min(limit, spent)
}
