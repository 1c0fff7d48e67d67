// SPDX-License-Identifier: Apache-2.0

// Package pacer is the contract pacer:policy@0.1.0, and recover of 0.2.0, for the standard Go toolchain. What the fields mean is in
// wit/policy/v0.2.0/policy.wit. Each decision is a package below this one, because a program exports all that it imports.
package pacer

import (
	"cmp"
	"slices"
	"strconv"

	"newest-first/pacer/internal/memory"
)

// Attribute is a further fact; unknown keys must be ignored.
type Attribute struct{ Key, Value string }

// Counts are runners of the pool by phase.
type Counts struct{ Pending, Starting, Idle, Busy, Stopping uint32 }

// Quantiles is the distribution of a duration in seconds.
type Quantiles struct{ Samples, P50, P90, P99 uint32 }

// APIBudget is GitHub's rate limit for the pool's credentials.
type APIBudget struct{ Limit, Remaining, ResetsIn uint32 }

// Pool is the set of runners that the decision is about.
type Pool struct {
	Namespace, Name, Kind      string
	Labels                     []string
	MinReplicas, MaxReplicas   *uint32
	Desired                    uint32
	Counts                     Counts
	LastScaleUp, LastScaleDown *uint32
	Revision                   string
	Ephemeral                  bool
	Budget                     *APIBudget
	StartTime, RunTime         *Quantiles
	Arrivals                   []uint32
	Attributes                 []Attribute
}

// Node runs runners of the pool.
type Node struct {
	Name          string
	Runners, Busy uint32
	Draining      bool
	Age           *uint32
	Attributes    []Attribute
}

// Fact is the value of an attribute, and whether there is one of this key.
func Fact(attributes []Attribute, key string) (string, bool) {
	for _, attribute := range attributes {
		if attribute.Key == key {
			return attribute.Value, true
		}
	}
	return "", false
}

// Ordered are the indices of items, by an order of the items; of equal ones the first is first.
func Ordered[T any](items []T, order func(one, other T) int) []uint32 {
	indices := make([]uint32, len(items))
	for index := range indices {
		indices[index] = uint32(index)
	}
	slices.SortFunc(indices, func(a, b uint32) int { return cmp.Or(order(items[a], items[b]), cmp.Compare(a, b)) })
	return indices
}

// Duration is a duration for people: 45 s, 14 min, 2 h 5 min, 3 d 4 h; the second unit is left out when it is zero.
func Duration(seconds uint32) string {
	told := func(number uint32, unit string) string { return strconv.FormatUint(uint64(number), 10) + unit }
	big, bigUnit, small, smallUnit := seconds/3600, " h", seconds%3600/60, " min"
	switch {
	case seconds < 60:
		return told(seconds, " s")
	case seconds < 3600:
		return told(seconds/60, " min")
	case seconds >= 86_400:
		big, bigUnit, small, smallUnit = seconds/86_400, " d", seconds%86_400/3600, " h"
	}
	if small == 0 {
		return told(big, bigUnit)
	}
	return told(big, bigUnit) + " " + told(small, smallUnit)
}

var (
	name, version, summary string
	validators             []func(settings string) []Problem
)

// Describe says what the policy is.
func Describe(policyName, policyVersion, policySummary string) {
	name, version, summary = policyName, policyVersion, policySummary
}

// Deciding puts a decision together of a function that takes what it knows from the settings of the policy set, where what it leaves there is
// refused, and one that answers. The packages of the decisions call it.
func Deciding[R, S, A any](read func(settings *Settings) S, decide func(request R, settings S) (A, error)) func(request R, text string) (A, error) {
	reading := func(text string) (S, []Problem) {
		settings := parse(text)
		known := read(settings)
		return known, settings.problems()
	}
	validators = append(validators, func(text string) []Problem {
		_, problems := reading(text)
		return problems
	})
	return func(request R, text string) (answer A, err error) {
		known, problems := reading(text)
		for _, problem := range problems {
			return answer, problem
		}
		return decide(request, known)
	}
}

//go:wasmexport pacer:policy/lifecycle@0.1.0#describe
func describe() uint32 {
	p := memory.Allocate(44)
	p.SetString(name)
	(p + 8).SetString(version)
	(p + 16).SetString(summary)
	return uint32(p)
}

//go:wasmexport pacer:policy/lifecycle@0.1.0#validate-settings
func validateSettings(at, length uint32) uint32 {
	p := memory.Allocate(12)
	for _, validate := range validators {
		problems := validate(memory.Text(at, length))
		if len(problems) == 0 {
			continue
		}
		p.Set(1)
		memory.SetList(p+4, 16, problems, func(p memory.Place, problem Problem) {
			p.SetString(problem.Path)
			(p + 8).SetString(problem.Message)
		})
		break
	}
	return uint32(p)
}
