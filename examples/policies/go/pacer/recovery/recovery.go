// SPDX-License-Identifier: Apache-2.0

// Package recovery is the decision recover: whether a job that died with its runner shall run again.
package recovery

import (
	"newest-first/pacer"
	"newest-first/pacer/internal/memory"
)

// DeadJob is a job that died with its runner.
type DeadJob struct {
	ID                     uint64
	Run                    *uint64
	Attempt                uint32
	Repository, Workflow   string
	Labels                 []string
	Runner, Cause, Message string
	Since, Ran, Recoveries uint32
	Node                   *uint32
	Attributes             []pacer.Attribute
}

// Request asks which of the jobs run again.
type Request struct {
	Now        float64
	Pool       pacer.Pool
	Nodes      []pacer.Node
	Jobs       []DeadJob
	Attributes []pacer.Attribute
}

// Verdict is what becomes of a job, with a reason of one line for the people on call.
type Verdict struct {
	Index uint32
	// Action is rerun or leave.
	Action     string
	After      *uint32
	Reason     string
	Attributes []pacer.Attribute
}

var answer func(request Request, settings string) ([]Verdict, error)

// Export makes a function the decision. read takes what it knows from the settings of the policy set; what it leaves there is refused.
func Export[S any](read func(settings *pacer.Settings) S, decide func(request Request, settings S) ([]Verdict, error)) {
	answer = pacer.Deciding(read, decide)
}

func write(p memory.Place, verdicts []Verdict) {
	memory.SetList(p, 36, verdicts, func(p memory.Place, verdict Verdict) {
		p.Set(verdict.Index)
		(p + 4).SetString(verdict.Action)
		pacer.WriteOptional(p+12, verdict.After)
		(p + 20).SetString(verdict.Reason)
		pacer.WriteAttributes(p+28, verdict.Attributes)
	})
}

func job(p memory.Place) DeadJob {
	job := DeadJob{
		ID: p.U64(), Attempt: (p + 24).U32(),
		Repository: (p + 28).String(), Workflow: (p + 36).String(),
		Labels: pacer.ReadTexts(p + 44),
		Runner: (p + 52).String(), Cause: (p + 60).String(), Message: (p + 68).String(),
		Since: (p + 76).U32(), Ran: (p + 80).U32(), Recoveries: (p + 84).U32(),
		Node:       pacer.ReadOptional(p + 88),
		Attributes: pacer.ReadAttributes(p + 96),
	}
	if (p + 8).Bool() {
		run := (p + 16).U64()
		job.Run = &run
	}
	return job
}

//go:wasmexport pacer:policy/recover@0.2.0#decide
func decide(at uint32) uint32 {
	p := memory.Place(at)
	return memory.Answered(12, 4, func() ([]Verdict, error) {
		return answer(Request{
			Now: p.F64(), Pool: pacer.ReadPool(p + 16), Nodes: pacer.ReadNodes(p + 188), Jobs: memory.List(p+196, 104, job),
			Attributes: pacer.ReadAttributes(p + 204),
		}, (p + 8).String())
	}, write)
}
