// SPDX-License-Identifier: Apache-2.0

// sbom PROGRAM EMBEDDED...: one CycloneDX document of a program and of what is embedded in it, from one document of each, as cargo-cyclonedx
// writes them. The interpreter of texts is compiled into the operator and is a workspace with a lock file of its own, so that no single run of
// cargo-cyclonedx knows both. Writes to standard output; the same documents give the same bytes.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
)

// A document, or a part of one: what is not looked at here stays as it is.
type object = map[string]any

func read(file string) (object, error) {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document object
	if err := json.Unmarshal(bytes, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if document["bomFormat"] != "CycloneDX" {
		return nil, fmt.Errorf("%s is no CycloneDX document in JSON", file)
	}
	return document, nil
}

// The component that a document is about, and its name within the document.
func subject(document object) (object, string, error) {
	metadata, _ := document["metadata"].(object)
	component, _ := metadata["component"].(object)
	name, _ := component["bom-ref"].(string)
	if name == "" {
		return nil, "", fmt.Errorf("a document is about no component")
	}
	return component, name, nil
}

// Entries of a list by the field that identifies them.
func names(list []any, field string) map[string]object {
	named := map[string]object{}
	for _, one := range list {
		if entry, is := one.(object); is {
			if name, is := entry[field].(string); is {
				named[name] = entry
			}
		}
	}
	return named
}

// Adds what `embedded` has and `program` lacks, and that the program depends on it.
func add(program, embedded object) error {
	_, root, err := subject(program)
	if err != nil {
		return err
	}
	component, name, err := subject(embedded)
	if err != nil {
		return err
	}
	components, _ := program["components"].([]any)
	more, _ := embedded["components"].([]any)
	known := names(components, "bom-ref")
	for _, one := range append([]any{component}, more...) {
		entry, _ := one.(object)
		reference, _ := entry["bom-ref"].(string)
		if _, is := known[reference]; !is {
			components = append(components, one)
		}
	}
	program["components"] = components
	edges, _ := program["dependencies"].([]any)
	others, _ := embedded["dependencies"].([]any)
	from := names(edges, "ref")
	for _, one := range others {
		entry, _ := one.(object)
		reference, _ := entry["ref"].(string)
		if _, is := from[reference]; !is {
			edges = append(edges, one)
		}
	}
	edge, is := from[root]
	if !is {
		edge = object{"ref": root}
		edges = append(edges, edge)
	}
	on, _ := edge["dependsOn"].([]any)
	edge["dependsOn"] = append(on, name)
	program["dependencies"] = edges
	return nil
}

func run(files []string) error {
	if len(files) < 2 {
		return fmt.Errorf("usage: sbom PROGRAM EMBEDDED...")
	}
	program, err := read(files[0])
	if err != nil {
		return err
	}
	for _, file := range files[1:] {
		embedded, err := read(file)
		if err != nil {
			return err
		}
		if err := add(program, embedded); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(program)
}

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("sbom: ", err)
	}
}
