// Package page tests the built-in page in Chromium, with a real API server behind it.
package page

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Packages are the Debian packages of the browser.
func Packages() []string { return []string{"chromium", "fonts-liberation"} }

// Browser is Chromium with one tab.
type Browser struct {
	ctx    context.Context
	cancel func()

	mu       sync.Mutex
	faults   []string
	requests []string
}

// StartBrowser starts Chromium without a window. Close it when done.
func StartBrowser(ctx context.Context) (*Browser, error) {
	allocator, endAllocator := chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath("/usr/bin/chromium"), chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU,
		chromedp.Env("TZ=UTC"), chromedp.Flag("lang", "en-GB"), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("hide-scrollbars", true))
	tab, endTab := chromedp.NewContext(allocator)
	b := &Browser{ctx: tab, cancel: func() { endTab(); endAllocator() }}
	err := b.listen()
	if err != nil {
		b.cancel()
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	return b, nil
}

func (b *Browser) listen() error {
	if err := chromedp.Do(b.ctx); err != nil {
		return err
	}
	if err := chromedp.Listen(b.ctx, b.record); err != nil {
		return err
	}
	if _, err := chromedp.Call(b.ctx, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{runtime.Enable, log.Enable} {
		if _, err := chromedp.Call(b.ctx, enable, cdp.Empty{}); err != nil {
			return err
		}
	}
	return nil
}

// Close ends Chromium.
func (b *Browser) Close() { b.cancel() }

// record appends errors of the console, and requests.
func (b *Browser) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, arg := range e.Args {
				words = append(words, string(arg.Value)+arg.Description)
			}
			b.faults = append(b.faults, "console: "+strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.faults = append(b.faults, "log: "+e.Entry.Text+" "+e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// Faults returns the errors since its last call.
func (b *Browser) Faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults := b.faults
	b.faults = nil
	return faults
}

// Requests returns the addresses of all requests.
func (b *Browser) Requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.requests...)
}

// stepTimeout is far beyond what a step takes on a busy machine.
const stepTimeout = 3 * time.Minute

// Do does steps.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// Evaluate runs an expression of JavaScript in the tab, and waits for it if it is a promise.
func Evaluate[T any](b *Browser, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Resize gives the tab a width in pixels, and light or dark as people prefer it.
func (b *Browser) Resize(width int64, dark bool) error {
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	if err := b.Do(chromedp.EmulateViewport(width, 900)); err != nil {
		return err
	}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return err
}

// drawn waits until a view is drawn, with its charts, and is on the screen.
func (b *Browser) drawn(view string) error {
	_, err := Evaluate[bool](b, fmt.Sprintf(drawn, view[:strings.IndexAny(view+"/", "/?")]))
	return err
}

const drawn = `(async () => {
	for (;;) {
		const plots = [...document.querySelectorAll(".plot")];
		if (document.documentElement.dataset.drawn === %q && plots.every((p) => p.querySelector("canvas"))) {
			await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
			return true;
		}
		await new Promise((done) => setTimeout(done, 10));
	}
})()`

// Open loads the page with a view and waits until it is drawn.
func (b *Browser) Open(address, view string) error {
	if err := b.Do(chromedp.Navigate("about:blank"), chromedp.Navigate(address+"/page/#/"+view)); err != nil {
		return err
	}
	return b.drawn(view)
}

// Show goes to another view of the page that is loaded, and waits until it is drawn.
func (b *Browser) Show(view string) error {
	if _, err := Evaluate[bool](b, fmt.Sprintf(`(() => { delete document.documentElement.dataset.drawn; location.hash = "#/%s"; return true; })()`, view)); err != nil {
		return err
	}
	return b.drawn(view)
}

// Screenshot stores a picture of the whole page.
func (b *Browser) Screenshot(folder, name string) error {
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
}
