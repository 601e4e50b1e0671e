package offload

import (
	"container/heap"
	"container/list"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// world is a simulated gateway: one server with processor sharing in front of a
// store that evicts what was unused longest. Requests come at random (Poisson) for
// files of random popularity (Zipf) and size (Pareto), so that neither the store's
// hit ratio nor its service times are what the queue's model says.
type world struct {
	random *rand.Rand
	zipf   *rand.Zipf
	sizes  []float64
	// rate is requests a second, and slowness multiplies the VM's service times.
	rate, slowness func(seconds float64) float64

	now, work float64 // work is what each request in service has got since the start
	jobs      jobs
	arrival   float64

	limit, used float64
	recent      *list.List // of files, the newest first
	stored      map[int]*list.Element
}

const files = 3000

type job struct {
	ends, began float64 // ends by work
	hit         bool
}

type jobs []job

func (j jobs) Len() int           { return len(j) }
func (j jobs) Less(a, b int) bool { return j[a].ends < j[b].ends }
func (j jobs) Swap(a, b int)      { j[a], j[b] = j[b], j[a] }
func (j *jobs) Push(x any)        { *j = append(*j, x.(job)) }
func (j *jobs) Pop() any {
	last := (*j)[len(*j)-1]
	*j = (*j)[:len(*j)-1]
	return last
}

func newWorld(seed uint64, rate, slowness func(float64) float64) *world {
	random := rand.New(rand.NewPCG(seed, 22))
	w := &world{
		random: random, zipf: rand.NewZipf(random, 1.1, 20, files-1), rate: rate, slowness: slowness,
		recent: list.New(), stored: map[int]*list.Element{},
	}
	for range files {
		w.sizes = append(w.sizes, math.Min(1e6*math.Pow(1-random.Float64(), -0.6), 20e6))
	}
	return w
}

// request returns whether the store has a file, and makes it the newest in it.
func (w *world) request(file int) bool {
	if element, ok := w.stored[file]; ok {
		w.recent.MoveToFront(element)
		return true
	}
	w.stored[file] = w.recent.PushFront(file)
	w.used += w.sizes[file]
	w.evict()
	return false
}

func (w *world) evict() {
	for w.used > w.limit && w.recent.Len() > 0 {
		oldest := w.recent.Remove(w.recent.Back()).(int)
		delete(w.stored, oldest)
		w.used -= w.sizes[oldest]
	}
}

// run simulates until a time, and calls ended for each response.
func (w *world) run(until float64, o *Observation, ended func(at, took float64)) {
	for {
		finish := math.Inf(1)
		if len(w.jobs) > 0 {
			finish = w.now + (w.jobs[0].ends-w.work)*float64(len(w.jobs))
		}
		next := math.Min(math.Min(finish, w.arrival), until)
		if len(w.jobs) > 0 {
			w.work += (next - w.now) / float64(len(w.jobs))
		}
		w.now = next
		switch next {
		case finish:
			done := heap.Pop(&w.jobs).(job)
			took := w.now - done.began
			if done.hit {
				o.Hits++
				o.HitTime += time.Duration(took * 1e9)
			} else {
				o.Misses++
				o.MissTime += time.Duration(took * 1e9)
			}
			ended(w.now, took)
		case w.arrival:
			file := int(w.zipf.Uint64())
			hit := w.request(file)
			service := w.sizes[file] / 2000e6
			if !hit {
				service = (0.004 + w.sizes[file]/250e6) * w.slowness(w.now)
			}
			heap.Push(&w.jobs, job{ends: w.work + service, began: w.now, hit: hit})
			w.arrival = w.now + w.random.ExpFloat64()/w.rate(w.now)
			o.Arrivals++
		default:
			return
		}
	}
}

// variant prepares a controller before each decision.
type variant func(c *Controller)

// both leaves it as it is.
func both(*Controller) {}

// queueAlone never lets the loop decide.
func queueAlone(c *Controller) { c.pending = Observation{} }

// loopAlone never finds that the response time has moved.
func loopAlone(c *Controller) { c.changed = true }

const megabyte units.Bytes = 1e6

func simulatedSettings() Settings {
	return Settings{Target: 16 * time.Millisecond, Min: 100 * megabyte, Max: 6000 * megabyte}
}

// simulate returns the mean error of the response time, relative to the target, over windows of
// 30 s of four hours.
func simulate(t *testing.T, w *world, prepare variant) float64 {
	t.Helper()
	const hours, window = 4, 30.0
	c := New(simulatedSettings())
	w.limit = float64(c.memory)
	var sums, counts [hours * 3600 / window]float64
	for w.now < hours*3600 {
		var o Observation
		w.run(w.now+Tick.Seconds(), &o, func(at, took float64) {
			if i := int(at / window); i < len(sums) {
				sums[i] += took
				counts[i]++
			}
		})
		o.Duration = Tick
		o.Used = units.Bytes(w.used)
		prepare(c)
		d := c.Decide(o)
		if d.Memory < c.settings.Min || d.Memory > c.settings.Max {
			t.Fatalf("out of bounds: %+v", d)
		}
		w.limit = float64(c.memory)
		w.evict()
	}
	target, meanError := c.settings.Target.Seconds(), 0.0
	for i := range sums {
		if counts[i] > 0 {
			meanError += math.Abs(sums[i]/counts[i]/target-1) / float64(len(sums))
		}
	}
	return meanError
}

func constant(value float64) func(float64) float64 { return func(float64) float64 { return value } }

// steps changes the rate each half hour.
func steps(seconds float64) float64 {
	rates := []float64{45, 70, 55, 80, 40, 60}
	return rates[int(seconds/1800)%len(rates)]
}

// bursts has 90 s of half as many requests again each ten minutes, on a trend of three hours.
func bursts(seconds float64) float64 {
	rate := 55 + 15*math.Sin(2*math.Pi*seconds/10800)
	if math.Mod(seconds, 600) < 90 {
		rate *= 1.4
	}
	return rate
}

// slower is a VM whose own work makes it slower for an hour in two.
func slower(seconds float64) float64 { return 1 + 0.2*math.Sin(2*math.Pi*seconds/7200) }

// TestQueueAndLoopTogether checks, simulated, that the two together have less error than either alone.
func TestQueueAndLoopTogether(t *testing.T) {
	for _, workload := range []struct {
		name           string
		rate, slowness func(float64) float64
	}{{"steps", steps, constant(1)}, {"bursts with a slow trend", bursts, slower}} {
		t.Run(workload.name, func(t *testing.T) {
			mean := func(prepare variant) float64 {
				sum := 0.0
				const seeds = 3
				for seed := range uint64(seeds) {
					sum += simulate(t, newWorld(seed, workload.rate, workload.slowness), prepare) / seeds
				}
				return sum
			}
			together, queue, loop := mean(both), mean(queueAlone), mean(loopAlone)
			t.Logf("simulated mean error of the response time, relative to the target: together %.3f, queue alone %.3f, loop alone %.3f", together, queue, loop)
			if together >= queue || together >= loop {
				t.Errorf("together the error is %.3f, want less than %.3f and %.3f", together, queue, loop)
			}
		})
	}
}
