// SPDX-License-Identifier: Apache-2.0

// Package restart is the decision what to do about a runner that ended, never registered, or went missing.
package restart

import (
	"newest-first/pacer"
	"newest-first/pacer/internal/memory"
)

// Subject is a runner that needs a decision.
type Subject struct {
	Name, Situation, Cause         string
	ExitCode                       *int32
	Message, GitHub                string
	WasRegistered                  bool
	Since, Age, Attempts           uint32
	Ephemeral, StandAlone, Current bool
	Node                           *uint32
	Attributes                     []pacer.Attribute
}

// Request asks what to do about the subjects.
type Request struct {
	Now        float64
	Pool       pacer.Pool
	Nodes      []pacer.Node
	Subjects   []Subject
	Attributes []pacer.Attribute
}

// Verdict is what becomes of a subject, with a reason of one line for the people on call.
type Verdict struct {
	Index uint32
	// Action is keep, look-again, recreate, replace or quarantine.
	Action string
	// After is in seconds: for look-again 5 to 600, 60 if it is nil; for recreate and replace 0 to 600 since the runner got into its situation.
	// The operator changes a number outside these bounds to the nearest bound.
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

func subject(p memory.Place) Subject {
	return Subject{
		Name: p.String(), Situation: (p + 8).String(), Cause: (p + 16).String(),
		ExitCode: memory.Option(p+24, func(p memory.Place) int32 { return int32(p.U32()) }),
		Message:  (p + 32).String(), GitHub: (p + 40).String(),
		WasRegistered: (p + 48).Bool(),
		Since:         (p + 52).U32(), Age: (p + 56).U32(), Attempts: (p + 60).U32(),
		Ephemeral: (p + 64).Bool(), StandAlone: (p + 65).Bool(), Current: (p + 66).Bool(),
		Node:       pacer.ReadOptional(p + 68),
		Attributes: pacer.ReadAttributes(p + 76),
	}
}

//go:wasmexport pacer:policy/restart@0.1.0#decide
func decide(at uint32) uint32 {
	p := memory.Place(at)
	return memory.Answered(12, 4, func() ([]Verdict, error) {
		return answer(Request{
			Now: p.F64(), Pool: pacer.ReadPool(p + 16), Nodes: pacer.ReadNodes(p + 188), Subjects: memory.List(p+196, 84, subject),
			Attributes: pacer.ReadAttributes(p + 204),
		}, (p + 8).String())
	}, write)
}
