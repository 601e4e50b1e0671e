// Package loop closes the loop in the simulator: planner, agents, experiments and ledger of
// the product steer a small simulated fleet for hours, and twins of its nodes without the
// levers give what was truly saved. All that comes of it is simulated, and has to be called so.
package loop
