// SPDX-License-Identifier: Apache-2.0

// Controlplane is one executable that holds the real etcd, kube-apiserver,
// kube-controller-manager and kubectl. Which of them it is, the base name it is
// called by decides; called by any other name, its first argument does:
//
//	ln controlplane etcd && ./etcd --version
//	./controlplane kube-apiserver --version
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, as kube-apiserver and kube-controller-manager embed them

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// components maps each name to what its own main function does. A component
// sets global flags and feature gates while its command is made, so only the
// one that is asked for may be made.
var components = map[string]func(){
	"etcd": func() {
		etcdmain.Main(os.Args)
	},
	"kube-apiserver": func() {
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	},
	"kube-controller-manager": func() {
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	},
	"kubectl": func() {
		// kubectl logs before its flags are parsed. A bad level is reported
		// when they are.
		_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	if run, ok := components[name]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := components[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: controlplane {etcd|kube-apiserver|kube-controller-manager|kubectl} [argument...]")
	os.Exit(2)
}
