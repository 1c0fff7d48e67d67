// SPDX-License-Identifier: Apache-2.0

// Package memory reads and writes what the host and a policy hand each other, as the component model lays out records on wasm32.
package memory

import (
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

// Addresses are u32, whatever the size of Go's own pointers; Go's collector moves nothing, so what kept refers to stays where it is. Every call gets a fresh instance.
var kept [][]uint64

// Allocate makes room for a record.
func Allocate(size uint32) Place {
	if size == 0 {
		return 8
	}
	block := make([]uint64, (size+7)/8)
	kept = append(kept, block)
	return Place(uintptr(unsafe.Pointer(unsafe.SliceData(block))))
}

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	if oldSize != 0 {
		panic("growing is not part of the contract")
	}
	return uint32(Allocate(size))
}

// Place is an address in memory.
type Place uint32

func (p Place) pointer() unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&[1]uintptr{uintptr(p)}))
}

// U32 reads a number.
func (p Place) U32() uint32 { return *(*uint32)(p.pointer()) }

// U64 reads a number.
func (p Place) U64() uint64 { return *(*uint64)(p.pointer()) }

// Bool reads a truth value.
func (p Place) Bool() bool { return *(*byte)(p.pointer()) != 0 }

// F64 reads a number.
func (p Place) F64() float64 { return math.Float64frombits(p.U64()) }

// Set writes a number.
func (p Place) Set(value uint32) { *(*uint32)(p.pointer()) = value }

// String reads a text.
func (p Place) String() string {
	return unsafe.String((*byte)(Place(p.U32()).pointer()), int((p + 4).U32()))
}

// SetString writes a text.
func (p Place) SetString(text string) {
	at := Allocate(uint32(len(text)))
	copy(unsafe.Slice((*byte)(at.pointer()), len(text)), text)
	p.Set(uint32(at))
	(p + 4).Set(uint32(len(text)))
}

// Option reads what may be absent, of at most four bytes' alignment.
func Option[T any](p Place, read func(Place) T) *T {
	if !p.Bool() {
		return nil
	}
	value := read(p + 4)
	return &value
}

// List reads items of so many bytes.
func List[T any](p Place, size Place, read func(Place) T) []T {
	items := make([]T, (p + 4).U32())
	at := Place(p.U32())
	for index := range items {
		items[index] = read(at + Place(index)*size)
	}
	return items
}

// SetList writes items of so many bytes.
func SetList[T any](p Place, size uint32, items []T, write func(Place, T)) {
	at := Allocate(size * uint32(len(items)))
	p.Set(uint32(at))
	(p + 4).Set(uint32(len(items)))
	for index, item := range items {
		write(at+Place(index)*Place(size), item)
	}
}

// SetU64 writes a number of 64 bits.
func (p Place) SetU64(value uint64) { *(*uint64)(p.pointer()) = value }

// Text is a text that the host handed over as an argument.
func Text(at, length uint32) string { return unsafe.String((*byte)(Place(at).pointer()), int(length)) }

// Answered is a record of so many bytes with what decide answers, or with its error. A panic, whose text would be lost otherwise because there is nothing
// to print to, is one as well.
func Answered[T any](size uint32, payload Place, decide func() (T, error), write func(Place, T)) uint32 {
	p := Allocate(size)
	answer, err := safely(decide)
	if err != nil {
		p.Set(1)
		(p + payload).SetString(err.Error())
		return uint32(p)
	}
	write(p+payload, answer)
	return uint32(p)
}

func safely[T any](decide func() (T, error)) (answer T, err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case error:
			err = errors.New("panic: " + reason.Error() + place())
		case string:
			err = errors.New("panic: " + reason + place())
		default:
			err = errors.New("panic" + place())
		}
	}()
	return decide()
}

// place is where the panic began that a deferred function has just recovered: the innermost function outside of Go's runtime, by the last directory and the
// name of its file.
func place() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for panicked := false; ; {
		frame, more := frames.Next()
		within := strings.HasPrefix(frame.Function, "runtime.")
		if panicked && !within {
			file := frame.File
			directory := strings.LastIndexByte(file, '/')
			above := strings.LastIndexByte(file[:max(directory, 0)], '/')
			return ", at " + file[above+1:] + ":" + strconv.Itoa(frame.Line)
		}
		panicked = panicked || within
		if !more {
			return ""
		}
	}
}
