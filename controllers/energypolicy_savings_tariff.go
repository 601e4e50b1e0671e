package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
)

const (
	// tariffKept is how long the last answer counts while there is no other.
	tariffKept = time.Hour
	// mostPrice and mostGrams are what the API takes of figures.
	mostPrice = 1e6
	mostGrams = 1e4
)

// tariffWatch asks for the prices and intensities that policies name a query for. It is a
// Runnable of the controller runtime.
type tariffWatch struct {
	tariffOptions
	wake chan struct{}

	mu    sync.Mutex
	known map[tariffQuestion]tariffAnswer
}

type tariffOptions struct {
	reader   client.Reader
	asker    figureAsker
	interval time.Duration
	clock    clock.WithTicker
	log      logr.Logger
	// changed is told that policies have something else to say. It may block until the
	// context ends.
	changed func(context.Context)
}

// figureAsker asks servers for single figures; see energy.Asker.
type figureAsker interface {
	Figure(ctx context.Context, server energy.Server, query string) (float64, error)
}

type tariffQuestion struct {
	server energy.Server
	query  string
}

type tariffAnswer struct {
	// value as of a time. The zero time: there is none.
	value float64
	at    time.Time
	// refused says why there is nothing newer. Nil: there is.
	refused *energy.Refusal
}

func newTariffWatch(o tariffOptions) *tariffWatch {
	return &tariffWatch{tariffOptions: o, wake: make(chan struct{}, 1), known: map[tariffQuestion]tariffAnswer{}}
}

// NeedLeaderElection is true: only the leader writes statuses.
func (w *tariffWatch) NeedLeaderElection() bool { return true }

// Wake asks what was not asked yet at once. It never blocks.
func (w *tariffWatch) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // A wake-up is pending already.
	}
}

// Start asks until the context ends.
func (w *tariffWatch) Start(ctx context.Context) error {
	ticker := w.clock.NewTicker(w.interval)
	defer ticker.Stop()
	for onlyNew := false; ; {
		if err := w.round(ctx, onlyNew); err != nil && ctx.Err() == nil {
			w.log.Error(err, "nobody was asked for tariffs in this round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			onlyNew = false
		case <-w.wake:
			onlyNew = true
		}
	}
}

// round asks all questions at once, and waits for the answers: each server has its timeout.
func (w *tariffWatch) round(ctx context.Context, onlyNew bool) error {
	var policies v1alpha1.EnergyPolicyList
	if err := w.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	questions := map[tariffQuestion]bool{}
	for i := range policies.Items {
		for _, figure := range tariffFigures(&policies.Items[i]) {
			if figure.question.query != "" && figure.question.server.URL != "" {
				questions[figure.question] = true
			}
		}
	}
	w.forgetOthers(questions)
	var asking sync.WaitGroup
	for question := range questions {
		if onlyNew && w.isKnown(question) {
			continue
		}
		asking.Go(func() {
			value, err := w.asker.Figure(ctx, question.server, question.query)
			if ctx.Err() == nil {
				w.take(ctx, question, value, err)
			}
		})
	}
	asking.Wait()
	return nil
}

func (w *tariffWatch) isKnown(question tariffQuestion) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, known := w.known[question]
	return known
}

func (w *tariffWatch) forgetOthers(questions map[tariffQuestion]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.known, func(question tariffQuestion, _ tariffAnswer) bool { return !questions[question] })
}

func (w *tariffWatch) take(ctx context.Context, question tariffQuestion, value float64, err error) {
	w.mu.Lock()
	before := w.known[question]
	after := tariffAnswer{value: value, at: w.clock.Now()}
	if err != nil {
		after = before
		after.refused = refusalIn(err)
	}
	w.known[question] = after
	w.mu.Unlock()
	if err != nil && before.refused == nil {
		w.log.Error(err, "a tariff is not known: will ask again", "server", question.server.String())
	}
	if before.value != after.value || before.at.IsZero() || (before.refused == nil) != (after.refused == nil) {
		w.changed(ctx)
	}
}

// refusalIn is an error's Refusal, or what it says as one.
func refusalIn(err error) *energy.Refusal {
	if refusal := energy.RefusalIn(err); refusal != nil {
		return refusal
	}
	return energy.Refuse(energy.ReasonUnreachable, "%v", err)
}

// tariffFigure is one figure that a policy names.
type tariffFigure struct {
	// field that names the query, and what it is of, for messages.
	field, what string
	// given is the figure itself, or nil, and most what it can be.
	given    *resource.Quantity
	most     float64
	question tariffQuestion
}

// tariffFigures are the price and the intensity, as far as the policy names them.
func tariffFigures(policy *v1alpha1.EnergyPolicy) map[string]tariffFigure {
	tariff := policy.Spec.Tariff
	if tariff == nil {
		return nil
	}
	out := map[string]tariffFigure{}
	add := func(what, field string, given *resource.Quantity, query *string, most float64) {
		figure := tariffFigure{field: field, what: what, given: given, most: most}
		if query != nil {
			figure.question = tariffQuestion{query: *query}
			for _, setting := range observe.EnergySettings(policy) {
				if setting.Type == model.SourcePrometheus {
					figure.question.server = setting.Server
				}
			}
		}
		if given != nil || query != nil {
			out[what] = figure
		}
	}
	add(tariffPrice, "spec.tariff.priceQuery", tariff.PricePerKWh, tariff.PriceQuery, mostPrice)
	add(tariffIntensity, "spec.tariff.intensityQuery", tariff.GramsCO2PerKWh, tariff.IntensityQuery, mostGrams)
	return out
}

const (
	tariffPrice     = "price"
	tariffIntensity = "intensity"
)

// knownTariff is what is known of a policy's tariff.
type knownTariff struct {
	// price and grams per kWh. Nil: not known, or not asked for.
	price, grams *float64
	// condition is nil while there is nothing to tell, or a server was not asked yet.
	condition *metav1.Condition
}

// Of tells what is known of a policy's tariff now.
func (w *tariffWatch) Of(policy *v1alpha1.EnergyPolicy) knownTariff {
	figures := tariffFigures(policy)
	if len(figures) == 0 {
		return knownTariff{}
	}
	var out knownTariff
	var reason string
	var words []string
	awaited := false
	for _, what := range []string{tariffPrice, tariffIntensity} {
		figure, named := figures[what]
		if !named {
			continue
		}
		value, err := w.figure(figure)
		if errors.Is(err, errAwaitingTariff) {
			awaited, value = true, saidBefore(policy, what)
		}
		if err != nil {
			refusal := refusalIn(err)
			words = append(words, fmt.Sprintf("%s: %s", figure.field, refusal.Message))
			if reason == "" {
				reason = string(refusal.Reason)
			}
		}
		if what == tariffPrice {
			out.price = value
		} else {
			out.grams = value
		}
	}
	switch {
	case awaited:
	case reason != "":
		out.condition = &metav1.Condition{
			Type: v1alpha1.ConditionTariffKnown, Status: metav1.ConditionFalse, Reason: reason,
			Message: cut(strings.Join(words, "; "), maxConditionMessage),
		}
	default:
		out.condition = &metav1.Condition{
			Type: v1alpha1.ConditionTariffKnown, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTariffKnown,
			Message: "what was saved is told by the tariff as it is now, see status.tariff",
		}
	}
	return out
}

var errAwaitingTariff = errors.New("the server was not asked yet")

// saidBefore is what the status says of a figure, by which costs are told until its server was
// asked: or they would vanish for a moment with each change of leader. Nil: nothing, or of
// another spec.
func saidBefore(policy *v1alpha1.EnergyPolicy, what string) *float64 {
	said := policy.Status.Tariff
	if said == nil || policy.Status.ObservedGeneration != policy.Generation {
		return nil
	}
	text := said.GramsCO2PerKWh
	if what == tariffPrice {
		text = said.PricePerKWh
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil // It is empty: nothing was known.
	}
	return &value
}

// figure returns what counts of a figure, nil if nothing does, and what is wrong with it.
func (w *tariffWatch) figure(figure tariffFigure) (*float64, error) {
	if figure.given != nil {
		value := figure.given.AsApproximateFloat64()
		return &value, nil
	}
	if figure.question.server.URL == "" {
		return nil, energy.Refuse(v1alpha1.ReasonNoServer, "the query is for the policy's Prometheus server, and there is none: name it in spec.energy.sources, or set the figure itself")
	}
	w.mu.Lock()
	answer, known := w.known[figure.question]
	w.mu.Unlock()
	switch {
	case !known:
		return nil, errAwaitingTariff
	case answer.refused == nil && answer.value > figure.most:
		return nil, energy.Refuse(energy.ReasonImplausible, "the query yields %g, and no %s per kWh is above %g: correct it", answer.value, figure.what, figure.most)
	case answer.refused == nil:
		return &answer.value, nil
	case answer.at.IsZero() || w.clock.Since(answer.at) > tariffKept || answer.value > figure.most:
		return nil, answer.refused
	}
	return &answer.value, energy.Refuse(answer.refused.Reason, "%s. The %s of %s counts until it is an hour old",
		answer.refused.Message, figure.what, answer.at.UTC().Format(time.RFC3339))
}
