package ledger

import (
	"fmt"
	"time"
)

// Month is a calendar month in UTC. AllTime is every month since the ledger was begun.
type Month int32

// AllTime is no month, but all of them.
const AllTime Month = 0

// MonthOf is the month that a time is in.
func MonthOf(t time.Time) Month {
	t = t.UTC()
	const monthsAYear = 12
	return Month(t.Year()*monthsAYear + int(t.Month()) - 1)
}

// String is year and month, such as 2026-03.
func (m Month) String() string {
	if m == AllTime {
		return "all"
	}
	const monthsAYear = 12
	return fmt.Sprintf("%04d-%02d", m/monthsAYear, m%monthsAYear+1)
}
