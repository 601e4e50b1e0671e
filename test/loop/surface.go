package loop

import (
	"errors"
	"time"
)

// surface is what a simulated node of no group draws, in watts, by the level of its traffic: with each of
// its levers and without, as the simulator's physics and the product's plans have it.
type surface struct {
	spec   spec
	levels []float64
	watts  []joules
	// bytes a second at level 1.
	bytes float64
}

// measureSurfaces runs the nodes of a fleet at some levels, which stay as they are, with
// levers that always act.
func measureSurfaces(c Config) ([]surface, error) {
	c.Quiet, c.Unguarded, c.GroupNodes = true, true, 0
	surfaces := make([]surface, c.Nodes)
	return surfaces, all(c.Nodes, func(i int) error {
		s := &surfaces[i]
		s.spec, s.levels = c.spec(i), []float64{0.5, 1, 1.6}
		for _, level := range s.levels {
			watts, bytes, err := s.measure(level)
			if err != nil {
				return err
			}
			s.watts, s.bytes = append(s.watts, watts), bytes/level
		}
		return nil
	})
}

// measure one level.
func (s *surface) measure(level float64) (watts joules, bytes float64, err error) {
	const settles, measured = 40 * time.Minute, 20 * time.Minute
	n, err := newNode(s.spec, start(), false)
	if err != nil {
		return watts, 0, err
	}
	n.world.load.fixed = level
	models, err := newModels()
	if err != nil {
		return watts, 0, err
	}
	if err := n.wake(models); err != nil {
		return watts, 0, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	for n.now.Before(start().Add(settles + measured)) {
		if err := n.pass(); err != nil {
			return watts, 0, err
		}
		n.plainly()
	}
	watts = n.truth.drawn(n.now.Add(-measured), n.now)
	for i := range watts {
		watts[i] /= measured.Seconds()
	}
	return watts, n.agent.board.Latest().Rates.Totals.Bytes / n.agent.board.Latest().Rates.Totals.Seconds, nil
}

// at a level: between those that were measured.
func (s *surface) at(level float64) (watts joules) {
	i := 1
	for i < len(s.levels)-1 && level > s.levels[i] {
		i++
	}
	part := (level - s.levels[i-1]) / (s.levels[i] - s.levels[i-1])
	for h := range watts {
		watts[h] = s.watts[i-1][h] + part*(s.watts[i][h]-s.watts[i-1][h])
	}
	return watts
}
