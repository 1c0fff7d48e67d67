// SPDX-License-Identifier: Apache-2.0

// sbom ROOT PROGRAM EMBEDDED...: one CycloneDX document of a program and of what is embedded in it, from one document of each, as cargo-cyclonedx
// writes them. The interpreter of texts is compiled into the operator and is a workspace with a lock file of its own, so that no single run of
// cargo-cyclonedx knows both. Writes to standard output. The same sources give the same bytes, wherever they lie (ROOT) and whenever that is:
//
//	SOURCE_DATE_EPOCH  time of the document, in seconds since 1970
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"
)

// A document, or a part of one: what is not looked at here stays as it is.
type object = map[string]any

func read(root, file string) (object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte(root+"/"), nil)
	var document object
	if err := json.Unmarshal(text, &document); err != nil {
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

// Gives the document the time of the sources and, instead of a number drawn at random, one that follows from what it says: a UUID of version 8.
func identify(document object, epoch int64) error {
	metadata, _ := document["metadata"].(object)
	if metadata == nil {
		return fmt.Errorf("the document has no metadata")
	}
	metadata["timestamp"] = time.Unix(epoch, 0).UTC().Format(time.RFC3339)
	delete(document, "serialNumber")
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(text)
	hash[6] = hash[6]&0x0f | 0x80
	hash[8] = hash[8]&0x3f | 0x80
	document["serialNumber"] = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", hash[:4], hash[4:6], hash[6:8], hash[8:10], hash[10:16])
	return nil
}

func run(arguments []string) error {
	if len(arguments) < 3 {
		return fmt.Errorf("usage: sbom ROOT PROGRAM EMBEDDED...")
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	root, files := arguments[0], arguments[1:]
	program, err := read(root, files[0])
	if err != nil {
		return err
	}
	for _, file := range files[1:] {
		embedded, err := read(root, file)
		if err != nil {
			return err
		}
		if err := add(program, embedded); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := identify(program, epoch); err != nil {
		return err
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
