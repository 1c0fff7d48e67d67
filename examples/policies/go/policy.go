// Which idle runners go first: the youngest, because the caches of the old ones are warm.
package main

import (
	"cmp"
	"strconv"

	"newest-first/pacer"
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

func init() {
	pacer.Describe("newest-first", "0.1.0", "Removes the youngest runners and keeps those with warm caches")
	scaledown.Export(readSettings, selectRunners)
}

// The host calls the exports; there is nothing to do in main.
func main() {}
