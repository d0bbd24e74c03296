// Command grafana-dashboards reads dashboards with the types that Grafana generates from its schema. It prints each key
// and each kind of panel that the schema does not have, and each value that it refuses, and exits with 1 if there are any.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Printf("%s: %v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	strict, made := dashboard.Dashboard{}, dashboard.Dashboard{}
	// Without a problem, the result is a list without entries, and not nil.
	var problems cog.BuildErrors
	if err := strict.UnmarshalJSONStrict(text); err != nil && !(errors.As(err, &problems) && len(problems) == 0) {
		return err
	}
	// The strict reader drops panels.
	if err := json.Unmarshal(text, &made); err != nil {
		return err
	}
	if err := made.Validate(); err != nil {
		return err
	}
	for index, panel := range made.Panels {
		if _, known := cog.ConfigForPanelcfgVariant(panel.Panel.Type); !known {
			return fmt.Errorf("panels[%d].type: Grafana has no panel %q", index, panel.Panel.Type)
		}
	}
	// The strict reader ignores keys of queries and of fields, so compare with what the types keep.
	kept, err := json.Marshal(made)
	if err != nil {
		return err
	}
	var before, after any
	if err := errors.Join(json.Unmarshal(text, &before), json.Unmarshal(kept, &after)); err != nil {
		return err
	}
	return lost("", before, after)
}

// lost returns an error for the first key of `before` that `after` does not have.
func lost(at string, before, after any) error {
	switch old := before.(type) {
	case map[string]any:
		made, _ := after.(map[string]any)
		for key, value := range old {
			empty, _ := value.([]any)
			if _, ok := made[key]; !ok && (empty == nil || len(empty) > 0) {
				return fmt.Errorf("%s.%s: the schema has no such key", at, key)
			}
			if err := lost(at+"."+key, value, made[key]); err != nil {
				return err
			}
		}
	case []any:
		made, _ := after.([]any)
		for index, value := range old {
			if index >= len(made) {
				return fmt.Errorf("%s[%d]: the schema has no such entry", at, index)
			}
			if err := lost(fmt.Sprintf("%s[%d]", at, index), value, made[index]); err != nil {
				return err
			}
		}
	}
	return nil
}
