// SPDX-License-Identifier: Apache-2.0

// Package scaledown is the decision which idle runners go first.
package scaledown

import (
	"newest-first/pacer"
	"newest-first/pacer/internal/memory"
)

// Candidate is a runner that may be removed.
type Candidate struct {
	Name       string
	Idle, Age  uint32
	Node       *uint32
	Current    bool
	LastJobEnd *uint32
	Attributes []pacer.Attribute
}

// Request asks which candidates go first.
type Request struct {
	Now        float64
	Pool       pacer.Pool
	Nodes      []pacer.Node
	Candidates []Candidate
	Surplus    uint32
	Attributes []pacer.Attribute
}

// Choice is a candidate that goes, with a reason of one line for the people on call.
type Choice struct {
	Index      uint32
	Reason     string
	Attributes []pacer.Attribute
}

var answer func(request Request, settings string) ([]Choice, error)

// Export makes a function the decision. read takes what it knows from the settings of the policy set; what it leaves there is refused.
func Export[S any](read func(settings *pacer.Settings) S, decide func(request Request, settings S) ([]Choice, error)) {
	answer = pacer.Deciding(read, decide)
}

func candidate(p memory.Place) Candidate {
	return Candidate{
		p.String(), (p + 8).U32(), (p + 12).U32(), pacer.ReadOptional(p + 16), (p + 24).Bool(), pacer.ReadOptional(p + 28),
		pacer.ReadAttributes(p + 36),
	}
}

//go:wasmexport pacer:policy/scale-down@0.1.0#select
func choose(at uint32) uint32 {
	p := memory.Place(at)
	decide := func() ([]Choice, error) {
		return answer(Request{
			Now: p.F64(), Pool: pacer.ReadPool(p + 16), Nodes: pacer.ReadNodes(p + 188), Candidates: memory.List(p+196, 44, candidate),
			Surplus: (p + 204).U32(), Attributes: pacer.ReadAttributes(p + 208),
		}, (p + 8).String())
	}
	return memory.Answered(12, 4, decide, func(p memory.Place, choices []Choice) {
		memory.SetList(p, 20, choices, func(p memory.Place, choice Choice) {
			p.Set(choice.Index)
			(p + 4).SetString(choice.Reason)
			pacer.WriteAttributes(p+12, choice.Attributes)
		})
	})
}
