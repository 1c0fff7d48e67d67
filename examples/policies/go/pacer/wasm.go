// SPDX-License-Identifier: Apache-2.0

package pacer

import (
	"errors"
	"math"
	"unsafe"
)

// The host reads and writes this module's memory as the component model lays out records on wasm32. Addresses are u32 there, whatever the
// size of Go's own pointers; Go's collector moves nothing, so what kept refers to stays where it is. Every call gets a fresh instance.
var kept [][]uint64

func allocate(size uint32) uint32 {
	if size == 0 {
		return 8
	}
	block := make([]uint64, (size+7)/8)
	kept = append(kept, block)
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(block))))
}

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	if oldSize != 0 {
		panic("growing is not part of the contract")
	}
	return allocate(size)
}

// An address in memory.
type place uint32

func (p place) pointer() unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&[1]uintptr{uintptr(p)}))
}
func (p place) u32() uint32      { return *(*uint32)(p.pointer()) }
func (p place) u64() uint64      { return *(*uint64)(p.pointer()) }
func (p place) bool() bool       { return *(*byte)(p.pointer()) != 0 }
func (p place) set(value uint32) { *(*uint32)(p.pointer()) = value }

func (p place) string() string {
	return unsafe.String((*byte)(place(p.u32()).pointer()), int((p + 4).u32()))
}

func (p place) setString(text string) {
	at := place(allocate(uint32(len(text))))
	copy(unsafe.Slice((*byte)(at.pointer()), len(text)), text)
	p.set(uint32(at))
	(p + 4).set(uint32(len(text)))
}

func option[T any](p place, read func(place) T) *T {
	if !p.bool() {
		return nil
	}
	value := read(p + 4)
	return &value
}

func list[T any](p place, size place, read func(place) T) []T {
	items := make([]T, (p + 4).u32())
	at := place(p.u32())
	for index := range items {
		items[index] = read(at + place(index)*size)
	}
	return items
}

func setList[T any](p place, size uint32, items []T, write func(place, T)) {
	at := place(allocate(size * uint32(len(items))))
	p.set(uint32(at))
	(p + 4).set(uint32(len(items)))
	for index, item := range items {
		write(at+place(index)*place(size), item)
	}
}

func attribute(p place) Attribute    { return Attribute{p.string(), (p + 8).string()} }
func attributes(p place) []Attribute { return list(p, 16, attribute) }
func quantiles(p place) Quantiles {
	return Quantiles{p.u32(), (p + 4).u32(), (p + 8).u32(), (p + 12).u32()}
}
func apiBudget(p place) APIBudget { return APIBudget{p.u32(), (p + 4).u32(), (p + 8).u32()} }
func optionalU32(p place) *uint32 { return option(p, place.u32) }

func setAttributes(p place, items []Attribute) {
	setList(p, 16, items, func(p place, item Attribute) {
		p.setString(item.Key)
		(p + 8).setString(item.Value)
	})
}

func pool(p place) Pool {
	return Pool{
		Namespace: p.string(), Name: (p + 8).string(), Kind: (p + 16).string(),
		Labels:      list(p+24, 8, place.string),
		MinReplicas: optionalU32(p + 32), MaxReplicas: optionalU32(p + 40),
		Desired:     (p + 48).u32(),
		Counts:      Counts{(p + 52).u32(), (p + 56).u32(), (p + 60).u32(), (p + 64).u32(), (p + 68).u32()},
		LastScaleUp: optionalU32(p + 72), LastScaleDown: optionalU32(p + 80),
		Revision:  (p + 88).string(),
		Ephemeral: (p + 96).bool(),
		Budget:    option(p+100, apiBudget),
		StartTime: option(p+116, quantiles), RunTime: option(p+136, quantiles),
		Arrivals:   list(p+156, 4, place.u32),
		Attributes: attributes(p + 164),
	}
}

func node(p place) Node {
	return Node{p.string(), (p + 8).u32(), (p + 12).u32(), (p + 16).bool(), optionalU32(p + 20), attributes(p + 28)}
}

func candidate(p place) Candidate {
	return Candidate{p.string(), (p + 8).u32(), (p + 12).u32(), optionalU32(p + 16), (p + 24).bool(), optionalU32(p + 28), attributes(p + 36)}
}

//go:wasmexport pacer:policy/lifecycle@0.1.0#describe
func describe() uint32 {
	p := place(allocate(44))
	p.setString(name)
	(p + 8).setString(version)
	(p + 16).setString(summary)
	return uint32(p)
}

//go:wasmexport pacer:policy/lifecycle@0.1.0#validate-settings
func validateSettings(at, length uint32) uint32 {
	p := place(allocate(12))
	if problems := validate(unsafe.String((*byte)(place(at).pointer()), int(length))); len(problems) > 0 {
		p.set(1)
		setList(p+4, 16, problems, func(p place, problem Problem) {
			p.setString(problem.Path)
			(p + 8).setString(problem.Message)
		})
	}
	return uint32(p)
}

//go:wasmexport pacer:policy/scale-down@0.1.0#select
func selectChoices(at uint32) uint32 {
	request, answered := place(at), place(allocate(12))
	choices, err := safely(request)
	if err != nil {
		answered.set(1)
		(answered + 4).setString(err.Error())
		return uint32(answered)
	}
	setList(answered+4, 20, choices, func(p place, choice Choice) {
		p.set(choice.Index)
		(p + 4).setString(choice.Reason)
		setAttributes(p+12, choice.Attributes)
	})
	return uint32(answered)
}

// safely makes an error of a panic, whose text would be lost otherwise: there is nothing to print to.
func safely(p place) (choices []Choice, err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case error:
			err = errors.New("panic: " + reason.Error())
		case string:
			err = errors.New("panic: " + reason)
		default:
			err = errors.New("panic")
		}
	}()
	request := ScaleDownRequest{
		Now:        math.Float64frombits(p.u64()),
		Pool:       pool(p + 16),
		Nodes:      list(p+188, 36, node),
		Candidates: list(p+196, 44, candidate),
		Surplus:    (p + 204).u32(),
		Attributes: attributes(p + 208),
	}
	return answer(request, (p + 8).string())
}
