// pod-security reads Pods as JSON, one a line, and prints for each, as JSON, what keeps it from each level of
// Kubernetes' Pod Security Standards: {"baseline": "", "restricted": "hostNetwork: …"}. It is the API server's own code.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var pod corev1.Pod
		if err := json.Unmarshal(lines.Bytes(), &pod); err != nil {
			return err
		}
		said := map[string]string{}
		for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
			version := api.LevelVersion{Level: level, Version: api.LatestVersion()}
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(version, &pod.ObjectMeta, &pod.Spec))
			said[string(level)] = result.ForbiddenDetail()
		}
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return lines.Err()
}
