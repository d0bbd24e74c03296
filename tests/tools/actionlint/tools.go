//go:build tools

// Package tools names the command, so that `go mod tidy` keeps what it needs.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
