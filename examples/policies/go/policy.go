// Which idle runners go first: the youngest, because the caches of the old ones are warm.
package main

import (
	"cmp"
	"slices"
	"strconv"

	"newest-first/pacer"
)

// settings of policies.yaml.
type settings struct {
	// minIdleSeconds keeps runners that have been idle for less.
	minIdleSeconds uint32
}

func readSettings(given *pacer.Settings) settings {
	return settings{minIdleSeconds: given.Uint32("minIdleSeconds", 0)}
}

func selectRunners(request pacer.ScaleDownRequest, settings settings) ([]pacer.Choice, error) {
	youngest := make([]uint32, 0, len(request.Candidates))
	for index, runner := range request.Candidates {
		if runner.Idle >= settings.minIdleSeconds {
			youngest = append(youngest, uint32(index))
		}
	}
	slices.SortFunc(youngest, func(a, b uint32) int {
		one, other := request.Candidates[a], request.Candidates[b]
		return cmp.Or(cmp.Compare(one.Age, other.Age), cmp.Compare(one.Name, other.Name))
	})
	youngest = youngest[:min(len(youngest), int(request.Surplus))]
	choices := make([]pacer.Choice, 0, len(youngest))
	for _, index := range youngest {
		reason := strconv.FormatUint(uint64(request.Candidates[index].Age), 10) + " s old"
		choices = append(choices, pacer.Choice{Index: index, Reason: reason})
	}
	return choices, nil
}

func init() {
	pacer.Describe("newest-first", "0.1.0", "Removes the youngest runners and keeps those with warm caches")
	pacer.ScaleDown(readSettings, selectRunners)
}

// The host calls the exports; there is nothing to do in main.
func main() {}
