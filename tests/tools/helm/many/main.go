// many runs commands of Helm, one after the other, in one process, because the start of Helm takes longer than a small
// chart. It reads a line of JSON for each: the working directory, stdin and the arguments. It prints a line of JSON for
// each: what Helm prints on stdout and stderr, and whether it succeeded. The code is that of cmd/helm.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"
	_ "unsafe"

	helmcmd "helm.sh/helm/v4/pkg/cmd"
)

// initializers holds what cobra calls before a command. NewRootCmd adds to it, and nothing removes that.
//
//go:linkname initializers github.com/spf13/cobra.initializers
var initializers []func()

type done struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Ok     bool   `json:"ok"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin) // not the os.Stdin of a command
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var words []string
		if err := json.Unmarshal(lines.Bytes(), &words); err != nil {
			log.Fatal(err)
		}
		if err := os.Chdir(words[0]); err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(run(words[1], words[2:])); err != nil {
			log.Fatal(err)
		}
	}
}

func run(stdin string, arguments []string) done {
	given, giving, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	os.Stdin = given
	go func() {
		io.WriteString(giving, stdin)
		giving.Close()
	}()

	// Helm also logs to stderr.
	read, write, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = write
	printed := make(chan string)
	go func() {
		text, _ := io.ReadAll(read)
		printed <- string(text)
	}()

	initializers = nil
	var stdout bytes.Buffer
	command, err := helmcmd.NewRootCmd(&stdout, arguments, helmcmd.SetupLogging)
	if err == nil {
		command.SetArgs(arguments)
		err = command.Execute()
	}

	os.Stderr = stderr
	write.Close()
	text := <-printed
	read.Close()
	given.Close() // ends the goroutine, if Helm has not read all
	return done{stdout.String(), text, err == nil}
}
