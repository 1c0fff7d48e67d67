// SPDX-License-Identifier: Apache-2.0

// Package pacer is the scale-down decision of the contract pacer:policy@0.1.0 for the standard Go toolchain. What the fields mean is in
// wit/policy/v0.1.0/policy.wit.
package pacer

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

// Candidate is a runner that may be removed.
type Candidate struct {
	Name       string
	Idle, Age  uint32
	Node       *uint32
	Current    bool
	LastJobEnd *uint32
	Attributes []Attribute
}

// ScaleDownRequest asks which candidates go first.
type ScaleDownRequest struct {
	Now        float64
	Pool       Pool
	Nodes      []Node
	Candidates []Candidate
	Surplus    uint32
	Attributes []Attribute
}

// Choice is a candidate that goes, with a reason of one line for the people on call.
type Choice struct {
	Index      uint32
	Reason     string
	Attributes []Attribute
}

var (
	name, version, summary string
	validate               func(settings string) []Problem
	answer                 func(request ScaleDownRequest, settings string) ([]Choice, error)
)

// Describe says what the policy is.
func Describe(policyName, policyVersion, policySummary string) {
	name, version, summary = policyName, policyVersion, policySummary
}

// ScaleDown makes a function the policy. read takes what it knows from the settings of the policy set; what it leaves there is refused.
func ScaleDown[S any](read func(settings *Settings) S, decide func(request ScaleDownRequest, settings S) ([]Choice, error)) {
	validate = func(text string) []Problem {
		settings := parse(text)
		read(settings)
		return settings.problems()
	}
	answer = func(request ScaleDownRequest, text string) ([]Choice, error) {
		settings := parse(text)
		known := read(settings)
		for _, problem := range settings.problems() {
			return nil, problem
		}
		return decide(request, known)
	}
}
