// Package loop closes the loop in the simulator: planner, agents, experiments and ledger
// of the product steer a simulated fleet for days, and twins of its nodes without the
// levers tell what was truly saved. All that comes of it is simulated, and has to be
// called so. docs/design/closed-loop.md tells what is coarser than in the product.
package loop
