// SPDX-License-Identifier: Apache-2.0

package pacer

import "newest-first/pacer/internal/memory"

type place = memory.Place

func attribute(p place) Attribute { return Attribute{p.String(), (p + 8).String()} }
func quantiles(p place) Quantiles {
	return Quantiles{p.U32(), (p + 4).U32(), (p + 8).U32(), (p + 12).U32()}
}
func apiBudget(p place) APIBudget { return APIBudget{p.U32(), (p + 4).U32(), (p + 8).U32()} }

// ReadAttributes, and what follows, read records of the contract; the packages of the decisions call them.
func ReadAttributes(p memory.Place) []Attribute { return memory.List(p, 16, attribute) }

// WriteAttributes writes further facts.
func WriteAttributes(p memory.Place, items []Attribute) {
	memory.SetList(p, 16, items, func(p place, item Attribute) {
		p.SetString(item.Key)
		(p + 8).SetString(item.Value)
	})
}

// ReadOptional reads a number that may be absent.
func ReadOptional(p memory.Place) *uint32 { return memory.Option(p, place.U32) }

// WriteOptional writes a number that may be absent.
func WriteOptional(p memory.Place, value *uint32) {
	if value != nil {
		p.Set(1)
		(p + 4).Set(*value)
	}
}

// ReadTexts reads a list of texts.
func ReadTexts(p memory.Place) []string { return memory.List(p, 8, place.String) }

// ReadPool reads a pool.
func ReadPool(p memory.Place) Pool {
	return Pool{
		Namespace: p.String(), Name: (p + 8).String(), Kind: (p + 16).String(),
		Labels:      ReadTexts(p + 24),
		MinReplicas: ReadOptional(p + 32), MaxReplicas: ReadOptional(p + 40),
		Desired:     (p + 48).U32(),
		Counts:      Counts{(p + 52).U32(), (p + 56).U32(), (p + 60).U32(), (p + 64).U32(), (p + 68).U32()},
		LastScaleUp: ReadOptional(p + 72), LastScaleDown: ReadOptional(p + 80),
		Revision:  (p + 88).String(),
		Ephemeral: (p + 96).Bool(),
		Budget:    memory.Option(p+100, apiBudget),
		StartTime: memory.Option(p+116, quantiles), RunTime: memory.Option(p+136, quantiles),
		Arrivals:   memory.List(p+156, 4, place.U32),
		Attributes: ReadAttributes(p + 164),
	}
}

// ReadNodes reads a list of nodes.
func ReadNodes(p memory.Place) []Node {
	return memory.List(p, 36, func(p place) Node {
		return Node{p.String(), (p + 8).U32(), (p + 12).U32(), (p + 16).Bool(), ReadOptional(p + 20), ReadAttributes(p + 28)}
	})
}
