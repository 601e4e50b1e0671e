// Package traffictest makes groups at random, finds their optimum by trying
// everything, and checks what is planned for them, all without the planner's own
// code: for its tests, and for measuring how far it is off.
package traffictest
