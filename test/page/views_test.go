//go:build e2e

package page

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// axe finds faults of accessibility.
//
//go:embed testdata/axe.min.js
var axe string

func testNoPolicy(s *scene) {
	s.must(s.browser.Resize(1280, false))
	s.must(s.browser.Open(s.stage.Address, "overview"))
	s.shows("There is no EnergyPolicy", "kubectl apply --filename=policies/observe.yaml")
	s.must(s.browser.Screenshot(s.shots, "no-policy"))
	s.quiet()
	s.must(s.browser.Open(s.stage.Address, "nodes"))
	s.shows("No agent has reported")
	s.quiet()
}

// testViews opens each view wide and narrow, light and dark.
func testViews(s *scene) {
	s.writeScenery()
	for minute := range trendMinutes {
		s.stage.Clock.Step(time.Minute)
		s.must(s.cluster.WaitFor(s.Context(), soon, "a point of each minute", func(context.Context) error {
			if body := s.get("data/trend?policy=" + policyName).body; strings.Count(body, `"time"`) <= minute {
				return errors.New(body)
			}
			return nil
		}))
	}
	s.must(s.browser.Open(s.stage.Address, "reach"))
	for _, screen := range []struct {
		width int64
		dark  bool
	}{{1280, false}, {1280, true}, {390, false}, {390, true}} {
		s.must(s.browser.Resize(screen.width, screen.dark))
		for _, view := range shown() {
			name := fmt.Sprintf("%s-%d-%s", view.name, screen.width, map[bool]string{true: "dark", false: "light"}[screen.dark])
			s.must(s.browser.Show(view.path))
			s.must(s.browser.Screenshot(s.shots, name))
			s.quiet()
			s.fits(name)
			s.accessible(name)
			if screen.width == 1280 && !screen.dark {
				s.shows(view.words...)
				s.tables(name, view.charts)
				s.keepsFocus(name)
			}
			if screen.dark != (screen.width == 1280) {
				s.reachable(name)
			}
		}
	}
	s.alone()
}

// view to open.
type view struct {
	path, name string
	// words that it shows, and the number of its charts.
	words  []string
	charts int
}

func shown() []view {
	return []view{
		{"overview", "overview", []string{policyName, "Power with and without Joulevirt", "260 W", "180 to 335", "Nothing to do", "does not know the reason NeverHeardOf", "draw 890 W now, and 782 W after", "moved-2", "No other node is better",
			"VMs after", "41 %", "Failed or withdrawn 1", "1 of 3 hosts are on", "worker-14 did not come back"}, 2},
		{"nodes", "nodes", []string{"worker-14", "Modelled", "Affinity 9"}, 0},
		{"node/" + nodeName, "node", []string{"Draws now", "In force now: Affinity on 9 VMs", "Decisions", "Pool Network", "2 pins", "web-worker-01-19"}, 1},
		{"groups", "groups", []string{"shop/checkout", "Equal shares", "Gateways withdrawn", "shop/render-1", "restarted 3 times", "returns after a cool-down"}, 2},
		{"trials", "trials", []string{"only worker-09", "Energy saved for the same work"}, 1},
		{"reach", "reach", []string{"190 VMs: NoGroup", "acts on 122 of 280"}, 1},
	}
}

// quiet wants that nothing went wrong in the browser.
func (s *scene) quiet() {
	s.Helper()
	for _, fault := range s.browser.Faults() {
		s.Errorf("the browser reports %s", fault)
	}
	if title, err := Evaluate[string](s.browser, `document.title`); err != nil || strings.Contains(title, "broken") {
		s.Errorf("the title is %q (%v): markup of an object was rendered", title, err)
	}
}

// fits wants that nothing is wider than the window, and that no text of a chart runs over.
func (s *scene) fits(name string) {
	s.Helper()
	over, err := Evaluate[float64](s.browser, `document.documentElement.scrollWidth - innerWidth`)
	s.must(err)
	if over > 0 {
		s.Errorf("%s is %v pixels wider than the window", name, over)
	}
	overlaps, err := Evaluate[[]string](s.browser, `(() => {
		const boxes = [...document.querySelectorAll("main svg text")].map((t) => ({ text: t.textContent, ...t.getBoundingClientRect().toJSON() }));
		const found = [];
		boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
			if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push(a.text + " and " + b.text);
		}));
		return found;
	})()`)
	s.must(err)
	for _, two := range overlaps {
		s.Errorf("%s: labels overlap: %s", name, two)
	}
}

// accessible wants that axe finds nothing serious, by all its rules.
func (s *scene) accessible(name string) {
	s.Helper()
	violations, err := Evaluate[[]string](s.browser, `if (!window.axe) {`+axe+`};
		axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
			.filter((v) => v.impact === "serious" || v.impact === "critical")
			.map((v) => v.id + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join("; ")))`)
	s.must(err)
	for _, violation := range violations {
		s.Errorf("%s: %s", name, violation)
	}
}

// tables wants that each chart has its figures as a table.
func (s *scene) tables(name string, charts int) {
	s.Helper()
	rows, err := Evaluate[[]int](s.browser, `[...document.querySelectorAll("figure.chart")].map((c) => c.querySelectorAll("table tbody tr").length)`)
	s.must(err)
	if len(rows) != charts {
		s.Errorf("%s has %d charts, want %d", name, len(rows), charts)
	}
	for i, n := range rows {
		if n == 0 {
			s.Errorf("%s: chart %d has no table with its figures", name, i)
		}
	}
}

// controls are all that Tab must reach.
const controls = `[...document.querySelectorAll("a[href], button:not(:disabled), select:not(:disabled), input, summary, [tabindex='0']")].filter((e) => e.checkVisibility())`

// reachable presses Tab until all controls had the focus, and wants it to be seen on each. The page
// reads again each 30 seconds and draws what changed, so controls may be new after the first round:
// there are three.
func (s *scene) reachable(name string) {
	s.Helper()
	const missed = controls + `.filter((e) => !reached.has(e)).map((e) => e.outerHTML.slice(0, 120))`
	wanted, err := Evaluate[int](s.browser, `(() => { document.activeElement.blur(); getSelection().removeAllRanges(); window.reached = new Set(); window.unseen = new Set(); return `+controls+`.length })()`)
	s.must(err)
	left := []string{"everything"}
	for i := 0; i < 3*(wanted+2) && len(left) > 0; i++ {
		s.must(s.browser.Do(chromedp.KeyEvent(kb.Tab)))
		left, err = Evaluate[[]string](s.browser, `(() => {
			const e = document.activeElement;
			if (e !== document.body) {
				reached.add(e);
				const style = getComputedStyle(e);
				if (style.outlineStyle === "none" || style.outlineWidth === "0px") unseen.add(e.outerHTML.slice(0, 120));
			}
			return `+missed+`;
		})()`)
		s.must(err)
	}
	unseen, err := Evaluate[[]string](s.browser, `[...unseen]`)
	s.must(err)
	for _, control := range left {
		s.Errorf("%s: Tab does not reach %s", name, control)
	}
	for _, control := range unseen {
		s.Errorf("%s: the focus is not seen on %s", name, control)
	}
}

// keepsFocus wants that each control of the view has the focus still when the view is drawn anew.
func (s *scene) keepsFocus(name string) {
	s.Helper()
	lost, err := Evaluate[[]string](s.browser, `(async () => {
		const inMain = () => `+controls+`.filter((e) => document.getElementById("main").contains(e));
		const lost = [];
		for (let i = 0; i < inMain().length; i++) {
			const before = inMain()[i];
			before.focus();
			document.getElementById("theme").dispatchEvent(new Event("change"));
			while (before.isConnected) await new Promise((done) => setTimeout(done, 5));
			if (document.activeElement !== inMain()[i]) lost.push(before.outerHTML.slice(0, 120));
		}
		return lost;
	})()`)
	s.must(err)
	for _, control := range lost {
		s.Errorf("%s: the focus is lost on %s", name, control)
	}
}

// alone wants that no other server was used.
func (s *scene) alone() {
	s.Helper()
	own, err := url.Parse(s.stage.Address)
	s.must(err)
	for _, request := range s.browser.Requests() {
		to, err := url.Parse(request)
		s.must(err)
		if to.Host != own.Host && to.Scheme != "about" && to.Scheme != "data" {
			s.Errorf("the page requests %s", request)
		}
	}
}

func testNotInstalled(s *scene) {
	s.stage.Fail(errors.New("needed kinds are not installed"))
	s.must(s.browser.Resize(390, false))
	s.must(s.browser.Do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.stage.Address+"/page/#/overview")))
	s.shows("waits for kinds that are not installed", "kubectl joulevirt doctor")
	s.stage.Fail(nil)
	s.browser.Faults() // browsers report each answer that is no 200
}

// testNoManager ends the manager under the page: its content stays, with a sentence.
func testNoManager(s *scene) {
	s.must(s.browser.Resize(1280, false))
	s.must(s.browser.Open(s.stage.Address, "overview"))
	s.shows(policyName)
	s.stage.end()
	_, err := Evaluate[bool](s.browser, `document.getElementById("theme").dispatchEvent(new Event("change"))`)
	s.must(err)
	s.shows("The manager does not answer", v1alpha1.ConditionMeterAvailable)
	s.must(s.browser.Screenshot(s.shots, "no-manager"))
}
