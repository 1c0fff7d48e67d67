#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes the book into target/book/html. The pages stay where they are read on GitHub too, many of them beside what they are about. So they are
# copied to the same paths below target/book/src, with the files that they link to, and links work in both places.
#
#   MDBOOK              an executable to use instead: nothing is built
#   PACER_MDBOOK_CACHE  where mdbook is installed (${XDG_CACHE_HOME:-~/.cache}/pacer/mdbook)
set -eu

# Its licence is the MPL-2.0: a tool, of which nothing becomes part of pacer.
VERSION=0.5.4

say() { printf 'book: %s\n' "$*" >&2; }

cd -- "$(dirname -- "$0")/.."
cache=${PACER_MDBOOK_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME, XDG_CACHE_HOME or PACER_MDBOOK_CACHE must be set}/.cache}/pacer/mdbook}/$VERSION
mdbook=${MDBOOK:-$cache/bin/mdbook}
if [ ! -x "$mdbook" ]; then
    [ -z "${MDBOOK:-}" ] || { say "error: MDBOOK is no executable: $MDBOOK"; exit 1; }
    say "installing mdbook $VERSION into $cache; the first time, this takes some minutes on two cores"
    nice cargo install mdbook --version "$VERSION" --locked --no-default-features --features search --root "$cache" --quiet
fi

book=target/book
rm -rf "$book"
mkdir -p "$book/src"
cp docs/book.toml "$book/"
# The table of contents is at the top of the book, where its links begin at the top of the repository.
sed -E 's#\]\(#](docs/#; s#\]\(docs/\.\./#](#' docs/SUMMARY.md >"$book/src/SUMMARY.md"

# What a page links to and is no page itself, relative to the repository.
linked() {
    # Links inside of code are none.
    sed -E '/^ *```/,/^ *```/d; s/`[^`]*`//g' "$1" | grep -oE '\]\([^)#]+' | cut -c3- | grep -vE '^[a-z]+:|\.md$' | while read -r link; do
        realpath -m --relative-to=. "$(dirname "$1")/$link"
    done
}

# A list of the files of a directory, as GitHub shows one.
listing() {
    printf '<!DOCTYPE html><meta charset="utf-8"><title>%s</title><h1>%s</h1><ul>\n' "$1" "$1"
    (cd "$1" && find . -type f ! -path '*/target/*' ! -path '*/node_modules/*' ! -name '*.md') | sort | sed 's#^\./##' | while read -r file; do
        mkdir -p "$book/src/$1/$(dirname "$file")"
        cp "$1/$file" "$book/src/$1/$file"
        printf '<li><a href="%s">%s</a>\n' "$file" "$file"
    done
    printf '</ul>\n'
}

pages=$(sed -nE 's#.*\]\(([^)]*)\).*#\1#p' "$book/src/SUMMARY.md")
for page in $pages; do
    mkdir -p "$book/src/$(dirname "$page")"
    cp "$page" "$book/src/$page"
    linked "$page" | sort -u | while read -r path; do
        if [ -f "$path" ]; then
            mkdir -p "$book/src/$(dirname "$path")"
            cp "$path" "$book/src/$path"
        elif [ -d "$path" ] && [ ! -f "$path/README.md" ]; then
            mkdir -p "$book/src/$path"
            listing "$path" >"$book/src/$path/index.html"
        fi
    done
done
"$mdbook" --version >&2
"$mdbook" build "$book" >&2

# Links of the book itself: files that are there, and headings under the names that mdbook gives them.
cd "$book/html"
grep -roE --include='*.html' ' id="[^"]+"' . | sed -E 's#^\./([^:]*): id="(.*)"#\1\t\2#' | sort -u >../ids
# The page for what is not found is served at any depth; its links are those of a server.
grep -roE --include='*.html' --exclude=404.html 'href="[^":]+"' . | sed -E 's#^\./([^:]*):href="(.*)"$#\1\t\2#' | awk -F'\t' '{
    file = $1; path = $2; anchor = ""
    if (match(path, /#/)) { anchor = substr(path, RSTART + 1); path = substr(path, 1, RSTART - 1) }
    if (path == "") target = file
    else if (match(file, /.*\//)) target = substr(file, 1, RLENGTH) path
    else target = path
    if (target ~ /\/$/) target = target "index.html"
    print target "\t" anchor "\t" file
}' | sort -u >../links
cut -f1 ../links | xargs realpath -m --relative-to=. | paste - ../links | awk -F'\t' '{ print $1 "\t" $4 "\t" $3 }' | sort -u >../resolved
wrong=$(
    while IFS="$(printf '\t')" read -r target file _; do
        if [ ! -e "$target" ]; then
            printf '%s: %s does not exist\n' "$file" "$target"
        fi
    done <../resolved
    awk -F'\t' 'NR == FNR { ids[$1 "\t" $2] = 1; next } $1 ~ /\.html$/ && $3 != "" && !(($1 "\t" $3) in ids) { print $2 ": " $1 " has no #" $3 }' ../ids ../resolved
)
if [ -n "$wrong" ]; then
    printf '%s\n' "$wrong" >&2
    say 'error: these links of the book lead nowhere'
    exit 1
fi
say "$(printf '%s\n' "$pages" | wc -l) pages in $book/html; open $book/html/index.html"
