package access

const (
	// PagePath is the path that the manager serves its page below. People need the right to get
	// the non-resource URL /page/*.
	PagePath = "/page/"
	// LivePath answers with the power of all nodes and VMs.
	LivePath = PagePath + "data/live"
	// PageAudience is the audience of the tokens that open the page.
	PageAudience = "joulevirt-page"
)
