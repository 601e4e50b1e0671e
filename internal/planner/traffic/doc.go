// Package traffic splits a group's traffic over its members so that they cost
// least together. A member's cost is a concave function of its rate up to its
// knee, so bringing traffic together saves; floors, ceilings, knees, failure
// domains and the loss of a member bound how far. It is pure.
package traffic
