// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func document(t *testing.T, text string) object {
	t.Helper()
	var document object
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

func TestProgramHasWhatIsEmbeddedOnceAndDependsOnIt(t *testing.T) {
	program := document(t, `{"bomFormat":"CycloneDX","metadata":{"component":{"bom-ref":"program","name":"pacer"}},
		"components":[{"bom-ref":"serde","name":"serde"}],"dependencies":[{"ref":"program","dependsOn":["serde"]},{"ref":"serde"}]}`)
	embedded := document(t, `{"bomFormat":"CycloneDX","metadata":{"component":{"bom-ref":"interpreter","name":"interpreter"}},
		"components":[{"bom-ref":"serde","name":"serde"},{"bom-ref":"engine","name":"engine"}],
		"dependencies":[{"ref":"interpreter","dependsOn":["serde","engine"]},{"ref":"serde"},{"ref":"engine"}]}`)
	if err := add(program, embedded); err != nil {
		t.Fatal(err)
	}
	merged, err := json.Marshal(object{"components": program["components"], "dependencies": program["dependencies"]})
	if err != nil {
		t.Fatal(err)
	}
	expected := `{"components":[{"bom-ref":"serde","name":"serde"},{"bom-ref":"interpreter","name":"interpreter"},{"bom-ref":"engine","name":"engine"}],` +
		`"dependencies":[{"dependsOn":["serde","interpreter"],"ref":"program"},{"ref":"serde"},{"dependsOn":["serde","engine"],"ref":"interpreter"},{"ref":"engine"}]}`
	if string(merged) != expected {
		t.Errorf("%s", merged)
	}
}

func TestDocumentAboutNothingIsRefused(t *testing.T) {
	program := document(t, `{"metadata":{"component":{"bom-ref":"program"}}}`)
	if add(program, object{}) == nil || add(object{}, program) == nil {
		t.Error("a document without a component passes")
	}
}

func TestSameSourcesGiveTheSameDocumentWhereverAndWheneverItIsWritten(t *testing.T) {
	written := func(serial, at string) string {
		root := t.TempDir()
		file := filepath.Join(root, "sbom.json")
		text := `{"bomFormat":"CycloneDX","serialNumber":"` + serial + `","metadata":{"timestamp":"` + at + `"},"components":[{"bom-ref":"file://` + root + `/host"}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		document, err := read(root, file)
		if err != nil {
			t.Fatal(err)
		}
		if err := identify(document, 1_000_000_000); err != nil {
			t.Fatal(err)
		}
		found, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		return string(found)
	}
	one, other := written("urn:uuid:1", "2026-01-01T00:00:00Z"), written("urn:uuid:2", "2026-01-02T00:00:00Z")
	if one != other {
		t.Errorf("%s\n%s", one, other)
	}
	expected := `^\{"bomFormat":"CycloneDX","components":\[\{"bom-ref":"file://host"\}\],"metadata":\{"timestamp":"2001-09-09T01:46:40Z"\},` +
		`"serialNumber":"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"\}$`
	if !regexp.MustCompile(expected).MatchString(one) {
		t.Error(one)
	}
}
