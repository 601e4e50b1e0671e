package rates

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// checkValidation wants rates to be refused with a short text that has want in it; to pass
// when that is empty.
func checkValidation(t *testing.T, name string, rates *model.NodeRates, want string) {
	t.Helper()
	err := Validate(rates, "n")
	switch {
	case want == "":
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	case !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || len(err.Error()) > 500:
		t.Errorf("%s: error %v, want one with %q", name, err, want)
	}
}

// checkArrives wants what an agent sends to arrive as it was.
func checkArrives(t *testing.T, sent *model.NodeRates) {
	t.Helper()
	body, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(strings.NewReader(string(body)), "n")
	if diff := cmp.Diff(sent, got); err != nil || diff != "" {
		t.Errorf("%v (-sent +received):\n%s", err, diff)
	}
}
