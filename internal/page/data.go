package page

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/internal/cli/access"
)

const (
	// dataTimeout bounds what is waited for a cache that is not filled yet.
	dataTimeout = 10 * time.Second
	// mostText of what people look for.
	mostText = 256
	// pageSize is the number of rows that are sent at once.
	pageSize = 50
)

// problem is an answer that is none.
type problem struct {
	// Message is a sentence that says what to do.
	Message string `json:"message"`
	// SignIn is true when another token may help.
	SignIn bool `json:"signIn,omitempty"`
}

// data answers with what make returns as JSON, to who may see it.
func (p *Page) data(make func(context.Context, url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := p.gate.admit(r.Context(), tokenOf(r), addressOf(r)); err != nil {
			status := statusOf(err)
			p.write(w, status, problem{Message: sentence(err), SignIn: status == http.StatusUnauthorized || status == http.StatusForbidden})
			return
		}
		if err := p.Ready(); err != nil {
			p.write(w, http.StatusServiceUnavailable, problem{Message: "The manager waits for kinds that are not installed, Joulevirt's or KubeVirt's (" +
				err.Error() + "): kubectl joulevirt doctor names them, and says how to install them."})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), dataTimeout)
		defer cancel()
		answer, err := make(ctx, r.URL.Query())
		var none *access.NotFound
		switch {
		case errors.As(err, &none):
			p.write(w, http.StatusNotFound, problem{Message: sentence(err)})
		case err != nil:
			p.write(w, http.StatusServiceUnavailable, problem{Message: sentence(err)})
		default:
			p.write(w, http.StatusOK, answer)
		}
	}
}

func (p *Page) write(w http.ResponseWriter, status int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		p.Log.Error(err, "an answer of the page cannot be written as JSON")
		http.Error(w, `{"message":"The answer cannot be written as JSON: see the manager's log."}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who left does not read it
}

// text of a query, as far as it makes sense.
func text(query url.Values, name string) string {
	value := query.Get(name)
	return value[:min(len(value), mostText)]
}

// slice is a part of a list that is sent.
type slice[T any] struct {
	Items []T `json:"items"`
	// Total is the number of all, and From the index of the first item.
	Total int `json:"total"`
	From  int `json:"from"`
	// Size is the most that is sent at once.
	Size int `json:"size"`
}

// sliceOf returns the part of a list that a query asks for.
func sliceOf[T any](all []T, query url.Values) slice[T] { return sliceBy(all, query, pageSize) }

func sliceBy[T any](all []T, query url.Values, size int) slice[T] {
	from, err := strconv.Atoi(query.Get("from"))
	if err != nil || from < 0 {
		from = 0
	}
	from = min(from, len(all))
	out := slice[T]{Items: all[from:min(from+size, len(all))], Total: len(all), From: from, Size: size}
	if out.Items == nil {
		out.Items = []T{}
	}
	return out
}
