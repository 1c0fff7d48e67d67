// SPDX-License-Identifier: Apache-2.0

// Package capacity is the decision how much capacity to hold for which jobs until when.
package capacity

import (
	"newest-first/pacer"
	"newest-first/pacer/internal/memory"
)

// Job waits for a runner, or has one.
type Job struct {
	ID                   uint64
	State                string
	Queued               uint32
	Started              *uint32
	Repository, Workflow string
	Labels               []string
	Attempt              uint32
	Runner               *string
	Attributes           []pacer.Attribute
}

// Reservation holds capacity for a while. Effective and Expires are seconds from now.
type Reservation struct {
	ID         string
	Jobs       []uint64
	Replicas   uint32
	Effective  int32
	Expires    uint32
	Reason     string
	Attributes []pacer.Attribute
}

// Request asks which reservations shall exist.
type Request struct {
	Now          float64
	Pool         pacer.Pool
	Jobs         []Job
	Reservations []Reservation
	Attributes   []pacer.Attribute
}

// Plan is the reservations that shall exist.
type Plan struct {
	Reservations       []Reservation
	Ceiling, LookAgain *uint32
	Attributes         []pacer.Attribute
}

var answer func(request Request, settings string) (Plan, error)

// Export makes a function the decision. read takes what it knows from the settings of the policy set; what it leaves there is refused.
func Export[S any](read func(settings *pacer.Settings) S, decide func(request Request, settings S) (Plan, error)) {
	answer = pacer.Deciding(read, decide)
}

func job(p memory.Place) Job {
	return Job{
		ID: p.U64(), State: (p + 8).String(), Queued: (p + 16).U32(), Started: pacer.ReadOptional(p + 20),
		Repository: (p + 28).String(), Workflow: (p + 36).String(), Labels: pacer.ReadTexts(p + 44),
		Attempt: (p + 52).U32(), Runner: memory.Option(p+56, memory.Place.String), Attributes: pacer.ReadAttributes(p + 68),
	}
}

func reservation(p memory.Place) Reservation {
	return Reservation{
		ID: p.String(), Jobs: memory.List(p+8, 8, memory.Place.U64), Replicas: (p + 16).U32(), Effective: int32((p + 20).U32()),
		Expires: (p + 24).U32(), Reason: (p + 28).String(), Attributes: pacer.ReadAttributes(p + 36),
	}
}

//go:wasmexport pacer:policy/capacity@0.1.0#plan
func plan(at uint32) uint32 {
	p := memory.Place(at)
	decide := func() (Plan, error) {
		return answer(Request{
			Now: p.F64(), Pool: pacer.ReadPool(p + 16), Jobs: memory.List(p+188, 80, job),
			Reservations: memory.List(p+196, 44, reservation), Attributes: pacer.ReadAttributes(p + 204),
		}, (p + 8).String())
	}
	return memory.Answered(36, 4, decide, func(p memory.Place, plan Plan) {
		memory.SetList(p, 44, plan.Reservations, func(p memory.Place, held Reservation) {
			p.SetString(held.ID)
			memory.SetList(p+8, 8, held.Jobs, memory.Place.SetU64)
			(p + 16).Set(held.Replicas)
			(p + 20).Set(uint32(held.Effective))
			(p + 24).Set(held.Expires)
			(p + 28).SetString(held.Reason)
			pacer.WriteAttributes(p+36, held.Attributes)
		})
		pacer.WriteOptional(p+8, plan.Ceiling)
		pacer.WriteOptional(p+16, plan.LookAgain)
		pacer.WriteAttributes(p+24, plan.Attributes)
	})
}
