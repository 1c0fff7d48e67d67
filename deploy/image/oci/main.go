// SPDX-License-Identifier: Apache-2.0

// Writes an OCI layout with one image: the program, the libraries that it is linked against, certificate authorities, and the licences of all
// that is in it. No container engine is needed. The same files give the same bytes: times, owners and modes come from here.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Largest size of the compressed image: it is pulled by every node that may run the operator.
const limit = 60 << 20

// What the image says of itself, but for its version: who runs what. The Dockerfile says the same, which the test `book` of tests/suites compares. The
// user is a number, so that runAsNonRoot can tell.
//
//go:embed config.json
var settings []byte

// Rust's names of platforms by OCI's.
var targets = map[string]string{"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}

// The files of the image by their path without the leading slash.
type files map[string]file

type file struct {
	content    []byte
	executable bool
}

func (f file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

func (f files) add(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	f[strings.TrimPrefix(to, "/")] = file{content, info.Mode()&0o111 != 0}
	return nil
}

// Libraries and the loader of another platform, of which `directory` has those that Debian's cross compiler links against. What the program needs
// is read from it, because nothing of that platform runs here.
func (f files) addForeignLibraries(binary, directory, triplet string) error {
	program, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer program.Close()
	section := program.Section(".interp")
	if section == nil {
		return fmt.Errorf("%s names no loader", binary)
	}
	loader, err := section.Data()
	if err != nil {
		return err
	}
	to := strings.TrimRight(string(loader), "\x00")
	if err := f.add(to, filepath.Join(directory, path.Base(to))); err != nil {
		return err
	}
	needed, err := program.ImportedLibraries()
	if err != nil {
		return err
	}
	seen := map[string]bool{path.Base(to): true}
	for len(needed) > 0 {
		name := needed[0]
		needed = needed[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		from := filepath.Join(directory, name)
		library, err := elf.Open(from)
		if err != nil {
			return err
		}
		more, err := library.ImportedLibraries()
		library.Close()
		if err != nil {
			return err
		}
		needed = append(needed, more...)
		if err := f.add(path.Join("lib", triplet, name), from); err != nil {
			return err
		}
	}
	return nil
}

// Libraries and the loader, at the paths at which the loader looks for them.
func (f files) addLibraries(binary string) error {
	output, err := exec.Command("ldd", binary).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", binary, err)
	}
	for _, line := range strings.Split(string(output), "\n") {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				if err := f.add(word, word); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

type crate struct {
	ID           string
	Name         string
	Version      string
	License      string
	ManifestPath string `json:"manifest_path"`
	Source       string
}

// Licences of the crates that a package of a workspace is linked from, and a line for each of them.
func (f files) addCrates(manifest, target, program string) ([]string, error) {
	command := exec.Command("cargo", "metadata", "--format-version=1", "--locked", "--offline", "--manifest-path", manifest, "--filter-platform", target)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("cargo metadata: %w", err)
	}
	var metadata struct {
		Packages []crate
		Resolve  struct {
			Nodes []struct {
				ID   string
				Deps []struct {
					Pkg      string
					DepKinds []struct{ Kind *string } `json:"dep_kinds"`
				}
			}
		}
	}
	if err := json.Unmarshal(output, &metadata); err != nil {
		return nil, err
	}
	linked := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		if linked[id] {
			return
		}
		linked[id] = true
		for _, node := range metadata.Resolve.Nodes {
			if node.ID != id {
				continue
			}
			for _, dependency := range node.Deps {
				for _, kind := range dependency.DepKinds {
					// What is there for tests is not linked; what builds may leave code behind.
					if kind.Kind == nil || *kind.Kind == "build" {
						visit(dependency.Pkg)
					}
				}
			}
		}
	}
	for _, one := range metadata.Packages {
		if one.Name == program && one.Source == "" {
			visit(one.ID)
		}
	}
	if len(linked) < 2 {
		return nil, fmt.Errorf("no dependencies of %s in %s", program, manifest)
	}
	var list []string
	for _, one := range metadata.Packages {
		if !linked[one.ID] || one.Source == "" {
			continue
		}
		name := one.Name + "-" + one.Version
		list = append(list, fmt.Sprintf("%s\t%s\t%s\n", one.Name, one.Version, one.License))
		entries, err := os.ReadDir(filepath.Dir(one.ManifestPath))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			upper := strings.ToUpper(entry.Name())
			for _, start := range []string{"LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"} {
				if !entry.IsDir() && strings.HasPrefix(upper, start) {
					from := filepath.Join(filepath.Dir(one.ManifestPath), entry.Name())
					if err := f.add(path.Join("usr/share/licenses/crates", name, entry.Name()), from); err != nil {
						return nil, err
					}
					break
				}
			}
		}
	}
	return list, nil
}

// One tar archive, the same for the same files.
func (f files) tar(created time.Time) ([]byte, error) {
	directories := map[string]bool{"tmp": true}
	var names []string
	for name := range f {
		names = append(names, name)
		for directory := path.Dir(name); directory != "."; directory = path.Dir(directory) {
			directories[directory] = true
		}
	}
	for name := range directories {
		names = append(names, name+"/")
	}
	sort.Strings(names)
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, name := range names {
		header := &tar.Header{Name: name, ModTime: created, Format: tar.FormatPAX, Mode: 0o755, Typeflag: tar.TypeDir}
		if name == "tmp/" {
			header.Mode = 0o1777
		}
		one, isFile := f[name]
		if isFile {
			header.Typeflag, header.Size, header.Mode = tar.TypeReg, int64(len(one.content)), one.mode()
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(one.content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return buffer.Bytes(), err
}

// A table of all files: path, mode, bytes, SHA-256.
func (f files) table() []byte {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	sort.Strings(names)
	table := bytes.NewBufferString("path\tmode\tbytes\tsha256\n")
	for _, name := range names {
		fmt.Fprintf(table, "%s\t%04o\t%d\t%x\n", name, f[name].mode(), len(f[name].content), sha256.Sum256(f[name].content))
	}
	return table.Bytes()
}

func image(layer v1.Layer, arch, version string, created time.Time) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	with, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "deploy/image/oci"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(with, configuration(with, arch, version, created))
}

func configuration(with v1.Image, arch, version string, created time.Time) *v1.ConfigFile {
	config, err := with.ConfigFile()
	if err != nil {
		log.Fatal(err)
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: created}
	config.OS, config.Architecture = "linux", arch
	if err := json.Unmarshal(settings, &config.Config); err != nil {
		log.Fatal("config.json: ", err)
	}
	config.Config.Labels["org.opencontainers.image.version"] = version
	return config
}

func run() error {
	binary := flag.String("binary", "", "the program")
	native := flag.String("interpreter", "", "native code of the interpreter, which the program compiles itself when it is not there")
	out := flag.String("out", "", "directory of the layout; must not exist")
	manifest := flag.String("manifest", "Cargo.toml", "manifest of the workspace")
	authorities := flag.String("authorities", "/etc/ssl/certs/ca-certificates.crt", "PEM file with certificate authorities")
	version := flag.String("version", "", "version of the image, and its tag")
	arch := flag.String("arch", runtime.GOARCH, "platform of the program: amd64 or arm64")
	epoch := flag.Int64("epoch", 0, "time of all files, seconds since 1970: that of the commit")
	flag.Parse()
	if *binary == "" || *out == "" || *version == "" {
		return fmt.Errorf("--binary, --out and --version are needed")
	}
	if _, err := os.Stat(*out); !os.IsNotExist(err) {
		return fmt.Errorf("%s exists: remove it first", *out)
	}
	created := time.Unix(*epoch, 0).UTC()
	target, known := targets[*arch]
	if !known {
		return fmt.Errorf("no Rust target is known for %s", *arch)
	}
	content := files{
		"etc/passwd":        {content: []byte("pacer:x:65532:65532::/:/nonexistent\n")},
		"etc/group":         {content: []byte("pacer:x:65532:\n")},
		"etc/nsswitch.conf": {content: []byte("hosts: files dns\n")},
	}
	if err := content.add("usr/local/bin/pacer", *binary); err != nil {
		return err
	}
	// The program looks for it there.
	if *native != "" {
		if err := content.add("usr/local/bin/pacer.interpreter", *native); err != nil {
			return err
		}
	}
	// Of this machine, or of the packages that Debian's cross compiler for that platform depends on.
	suffix := ""
	if *arch == runtime.GOARCH {
		err := content.addLibraries(*binary)
		if err != nil {
			return err
		}
	} else {
		suffix = "-" + *arch + "-cross"
		triplet := strings.Replace(target, "-unknown", "", 1)
		if err := content.addForeignLibraries(*binary, filepath.Join("/usr", triplet, "lib"), triplet); err != nil {
			return fmt.Errorf("%w (Debian's gcc-%s brings the libraries)", err, triplet)
		}
	}
	if err := content.add("etc/ssl/certs/ca-certificates.crt", *authorities); err != nil {
		return err
	}
	for name, from := range map[string]string{"libc6": "libc6" + suffix, "libgcc-s1": "libgcc-s1" + suffix, "ca-certificates": "ca-certificates"} {
		if err := content.add("usr/share/licenses/debian/"+name, "/usr/share/doc/"+from+"/copyright"); err != nil {
			return err
		}
	}
	if err := content.add("usr/share/licenses/pacer/LICENSE", filepath.Join(filepath.Dir(*manifest), "LICENSE")); err != nil {
		return err
	}
	crates, err := content.addCrates(*manifest, target, "pacer")
	if err != nil {
		return err
	}
	// It is in the program as well, and is a workspace of its own.
	interpreter := filepath.Join(filepath.Dir(*manifest), "policies", "interpreter", "Cargo.toml")
	embedded, err := content.addCrates(interpreter, "wasm32-unknown-unknown", "pacer-policy-interpreter")
	if err != nil {
		return err
	}
	crates = append(crates, embedded...)
	slices.Sort(crates)
	content["usr/share/licenses/crates.tsv"] = file{content: []byte(strings.Join(slices.Compact(crates), ""))}
	archive, err := content.tar(created)
	if err != nil {
		return err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	made, err := image(layer, *arch, *version, created)
	if err != nil {
		return err
	}
	size, err := layer.Size()
	if err != nil {
		return err
	}
	if size > limit {
		return fmt.Errorf("the image has %d bytes compressed, and %d are the limit", size, limit)
	}
	place, err := layout.Write(*out, empty.Index)
	if err != nil {
		return err
	}
	platform := layout.WithPlatform(v1.Platform{OS: "linux", Architecture: *arch})
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": *version})
	if err := place.AppendImage(made, platform, name); err != nil {
		return err
	}
	// Layers come from temporary files, which nobody else may read.
	blobs, err := filepath.Glob(filepath.Join(*out, "blobs", "sha256", "*"))
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		if err := os.Chmod(blob, 0o644); err != nil {
			return err
		}
	}
	written, err := place.ImageIndex()
	if err != nil {
		return err
	}
	if err := validate.Index(written); err != nil {
		return fmt.Errorf("what was written is not valid: %w", err)
	}
	if err := os.WriteFile(*out+"-files.tsv", content.table(), 0o644); err != nil {
		return err
	}
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s: %d files, %.1f MiB compressed\n", *arch, digest, len(content), float64(size)/(1<<20))
	return nil
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("image: ", err)
	}
}
