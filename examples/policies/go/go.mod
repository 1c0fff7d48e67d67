module newest-first

go 1.24
