module pacer/deploy/release/sbom

go 1.26
