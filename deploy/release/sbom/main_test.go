// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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
