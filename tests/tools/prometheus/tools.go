//go:build tools

// Package tools names the commands, so that `go mod tidy` keeps what it needs.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
