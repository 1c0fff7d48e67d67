// All four decisions. The last lines export them: delete those that the shipped policy shall go on making, with what they call.
package main

import (
	"cmp"
	"strconv"

	"newest-first/pacer"
	"newest-first/pacer/capacity"
	"newest-first/pacer/recovery"
	"newest-first/pacer/restart"
	"newest-first/pacer/scaledown"
)

// settings of policies.yaml.
type settings struct {
	// minIdleSeconds keeps runners that have been idle for less.
	minIdleSeconds uint32
}

func readSettings(given *pacer.Settings) settings {
	return settings{minIdleSeconds: given.Uint32("minIdleSeconds", 0)}
}

// selectRunners says which idle runners go first: the youngest, because the caches of the old ones are warm.
func selectRunners(request scaledown.Request, settings settings) ([]scaledown.Choice, error) {
	youngest := pacer.Ordered(request.Candidates, func(one, other scaledown.Candidate) int {
		return cmp.Or(cmp.Compare(one.Age, other.Age), cmp.Compare(one.Name, other.Name))
	})
	choices := []scaledown.Choice{}
	for _, index := range youngest {
		runner := request.Candidates[index]
		if len(choices) == int(request.Surplus) {
			break
		}
		if runner.Idle >= settings.minIdleSeconds {
			choices = append(choices, scaledown.Choice{Index: index, Reason: strconv.FormatUint(uint64(runner.Age), 10) + " s old"})
		}
	}
	return choices, nil
}

// decideRunners says what to do about runners that ended or failed: others take their places, later after each failure.
func decideRunners(request restart.Request, _ settings) ([]restart.Verdict, error) {
	verdicts := make([]restart.Verdict, 0, len(request.Subjects))
	for index, subject := range request.Subjects {
		verdict := restart.Verdict{Index: uint32(index), Action: "replace", Reason: subject.Cause}
		switch {
		case subject.Cause == "completed":
			verdict.Reason = "its job is done"
		case subject.Attempts > 5:
			verdict.Action, verdict.Reason = "quarantine", strconv.FormatUint(uint64(subject.Attempts), 10)+" attempts failed"
		default:
			after := 10 * subject.Attempts
			verdict.After = &after
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts, nil
}

// plan says how much capacity to hold: one runner for each job. Add reservations of your own to it.
func plan(request capacity.Request, _ settings) (capacity.Plan, error) {
	return capacity.OnePerJob(request), nil
}

// again says which jobs that died with their runners run again: once, where their place was taken away.
func again(request recovery.Request, _ settings) ([]recovery.Verdict, error) {
	taken := map[string]bool{"node-lost": true, "evicted": true, "preempted": true}
	verdicts := make([]recovery.Verdict, 0, len(request.Jobs))
	for index, job := range request.Jobs {
		verdict := recovery.Verdict{Index: uint32(index), Action: "leave", Reason: job.Cause}
		if job.Attempt > 1 {
			verdict.Reason = "attempt " + strconv.FormatUint(uint64(job.Attempt), 10) + " of its run"
		} else if taken[job.Cause] {
			verdict.Action = "rerun"
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts, nil
}

func init() {
	pacer.Describe("newest-first", "0.1.0", "Makes all four decisions, and removes the youngest runners first")
	scaledown.Export(readSettings, selectRunners)
	restart.Export(readSettings, decideRunners)
	capacity.Export(readSettings, plan)
	recovery.Export(readSettings, again)
}

// The host calls the exports; there is nothing to do in main.
func main() {}
