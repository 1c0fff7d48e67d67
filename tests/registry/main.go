// SPDX-License-Identifier: Apache-2.0

// A registry in memory, for the tests of policies that are pulled.
//
//	--listen ADDR         where, on loopback
//	--user NAME:PASSWORD  what has to be known to read or write
//	--scheme bearer       a token has to be fetched with that first; basic: each request carries it
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
)

// What the token service gives to those who know the password.
const token = "a-token-of-the-tests"

// Lets those through who know the password. Whoever writes is a test, and gives it at once.
func guarded(next http.Handler, address, user, password, scheme string) http.Handler {
	knows := func(request *http.Request) bool {
		name, word, given := request.BasicAuth()
		return given && name == user && word == password
	}
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		switch {
		case request.URL.Path == "/token":
			if !knows(request) {
				answer.WriteHeader(http.StatusUnauthorized)
				return
			}
			answer.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(answer).Encode(map[string]string{"token": token}); err != nil {
				log.Print(err)
			}
		case request.Method != http.MethodGet && knows(request), scheme == "basic" && knows(request),
			scheme == "bearer" && request.Header.Get("Authorization") == "Bearer "+token:
			next.ServeHTTP(answer, request)
		case scheme == "bearer":
			challenge := fmt.Sprintf(`Bearer realm="http://%s/token",service="tests",scope="repository:any:pull"`, address)
			answer.Header().Set("WWW-Authenticate", challenge)
			answer.WriteHeader(http.StatusUnauthorized)
		default:
			answer.Header().Set("WWW-Authenticate", `Basic realm="tests"`)
			answer.WriteHeader(http.StatusUnauthorized)
		}
	})
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	credentials := flag.String("user", "", "NAME:PASSWORD that have to be known")
	scheme := flag.String("scheme", "bearer", "how they are given: bearer or basic")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	address := listener.Addr().String()
	if user, password, given := strings.Cut(*credentials, ":"); given {
		handler = guarded(handler, address, user, password, *scheme)
	}
	return http.Serve(listener, handler)
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("registry: ", err)
	}
}
