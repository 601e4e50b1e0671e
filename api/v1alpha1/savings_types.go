package v1alpha1

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrialMode says whether levers have to prove themselves.
// +kubebuilder:validation:Enum=Required;Disabled
type TrialMode string

const (
	// TrialsRequired: on nodes with a meter a lever acts only within its trial until that
	// adopts it, and not when that rejects it.
	TrialsRequired TrialMode = "Required"
	// TrialsDisabled: levers act at once. What they save is measured by hold-back alone.
	TrialsDisabled TrialMode = "Disabled"
)

// Stance is how a lever stands with what experiments showed of it.
// +kubebuilder:validation:Enum=Unproven;AwaitingTrial;OnTrial;Adopted;Rejected;Undecided
type Stance string

// Basis says what joules were counted by.
// +kubebuilder:validation:Enum=Measured;Modelled
type Basis string

const (
	// BasisMeasured: a meter counted them.
	BasisMeasured Basis = "Measured"
	// BasisModelled: there was no meter. A model proves nothing.
	BasisModelled Basis = "Modelled"
)

// Tariff says what a kilowatt-hour costs and emits. Savings of all months are converted by
// the tariff as it is now: for one that changes within the day, give its mean.
type Tariff struct {
	// currency of the price, as ISO 4217 has it, such as EUR.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z]{3}$')",message="currency must be three capital letters, such as EUR"
	// +kubebuilder:validation:MaxLength=3
	// +optional
	Currency string `json:"currency,omitempty"`
	// pricePerKWh in the currency.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('1M')) <= 0",message="pricePerKWh must be from 0 to 1M, such as 0.28"
	// +optional
	PricePerKWh *resource.Quantity `json:"pricePerKWh,omitempty"`
	// gramsCO2PerKWh is the intensity of the electricity, in grams of CO2 equivalents.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="gramsCO2PerKWh must be from 0 to 10k, such as 380"
	// +optional
	GramsCO2PerKWh *resource.Quantity `json:"gramsCO2PerKWh,omitempty"`
}

// Decimal is a number with three significant digits, written out: 12.3, or -0.0451.
// +kubebuilder:validation:Pattern=`^-?[0-9]+([.][0-9]+)?$`
// +kubebuilder:validation:MaxLength=32
type Decimal string

// Float returns the number, or 0 for what is none.
func (d Decimal) Float() float64 {
	number, err := strconv.ParseFloat(string(d), 64)
	if err != nil {
		return 0
	}
	return number
}

// Estimate is a figure with the ends of its interval of 95 % confidence.
type Estimate struct {
	// value that is most likely. Less than 0: energy was lost.
	Value Decimal `json:"value"`
	// low end of the interval.
	Low Decimal `json:"low"`
	// high end of the interval.
	High Decimal `json:"high"`
}

// Savings report what a policy saved in a period.
type Savings struct {
	// basis says what the joules were counted by.
	Basis Basis `json:"basis"`
	// period is a month in UTC, such as 2026-03, or Total.
	// +kubebuilder:validation:MaxLength=7
	Period string `json:"period"`
	// kilowattHours that all levers saved: the sum of what each saves while the others stay as
	// they are. Booked is what hold-backs measured.
	KilowattHours Estimate `json:"kilowattHours"`
	// levers report what each saved.
	// +listType=map
	// +listMapKey=lever
	// +optional
	Levers []LeverSavings `json:"levers,omitempty"`
	// joulesPerGB of VMs' traffic (1e9 bytes) as it was.
	// +optional
	JoulesPerGB Decimal `json:"joulesPerGB,omitempty"`
	// joulesPerGBWithout is what it would have been without the product.
	// +optional
	JoulesPerGBWithout *Estimate `json:"joulesPerGBWithout,omitempty"`
	// cost that was saved, by the price as it is now, whatever it was in the period.
	// Absent: there is no price.
	// +optional
	Cost *Estimate `json:"cost,omitempty"`
	// kilogramsCO2 of CO2 equivalents that were saved, by the intensity as it is now.
	// Absent: there is none.
	// +optional
	KilogramsCO2 *Estimate `json:"kilogramsCO2,omitempty"`
}

// LeverSavings report what one lever saved.
type LeverSavings struct {
	// lever that is reported.
	Lever Lever `json:"lever"`
	// kilowattHours that it saved.
	KilowattHours Estimate `json:"kilowattHours"`
}

// LeverTrial reports how a lever stands on the nodes of one CPU model, or on one node, group or
// HybridWorkload.
type LeverTrial struct {
	// lever that is reported.
	Lever Lever `json:"lever"`
	// class is the CPU model of the nodes, or the only node, group or HybridWorkload.
	// +kubebuilder:validation:MaxLength=256
	Class string `json:"class"`
	// stance of the lever there.
	Stance Stance `json:"stance"`
	// units that the stance is of: nodes, a group for lever TrafficShare, or a HybridWorkload for Offload.
	// +optional
	Units int32 `json:"units,omitempty"`
	// pairs of slots, on and off, that each unit had done at the last look.
	// +optional
	Pairs int32 `json:"pairs,omitempty"`
	// plannedPairs after which the trial ends.
	// +optional
	PlannedPairs int32 `json:"plannedPairs,omitempty"`
	// savedPercent of the energy for the same work, by the hold-back of this month or, until that
	// says something, by the trial. Absent: not known.
	// +optional
	SavedPercent *Estimate `json:"savedPercent,omitempty"`
	// until is when the trial ends, or a lever that is not used is tried anew.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// message says the same in words.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// Conditions and reasons of what a policy saves, and of the manager's memory of it.
const (
	// ConditionSavingsProven is True while a lever acts that was measured to save.
	ConditionSavingsProven = "SavingsProven"
	// ConditionLedgerStored is False while what was booked and decided is not read from the
	// EnergyLedger, until when nothing is booked and no trial starts, or what is booked and
	// decided now is not stored there, so that the manager's successor would not know.
	ConditionLedgerStored = "LedgerStored"

	// ReasonLeverAdopted: at least one lever acts that was measured to save.
	ReasonLeverAdopted = "LeverAdopted"
	// ReasonAwaitingTrial: levers wait for their trials.
	ReasonAwaitingTrial = "AwaitingTrial"
	// ReasonOnTrial: levers are on trial.
	ReasonOnTrial = "OnTrial"
	// ReasonNoneAdopted: all levers that were tried were rejected, or not decided on.
	ReasonNoneAdopted = "NoneAdopted"
	// ReasonNoneInForce: levers were measured to save, and none of them acts now.
	ReasonNoneInForce = "NoneInForce"

	// ReasonAwaitingLedger: the EnergyLedger was not read yet.
	ReasonAwaitingLedger = "AwaitingLedger"
	// ReasonLedgerUnreadable: the EnergyLedger holds what this manager cannot read, or is of another policy.
	ReasonLedgerUnreadable = "LedgerUnreadable"
	// ReasonLedgerStored: what is known is stored.
	ReasonLedgerStored = "LedgerStored"
	// ReasonLedgerNotWritten: it is too large, the API server refuses it, or holds one that is not to be
	// written over.
	ReasonLedgerNotWritten = "LedgerNotWritten"
)

// Saving is an estimate of saved power. Of status.proven it is measured, elsewhere predicted by a model.
type Saving struct {
	// lever that saves.
	Lever Lever `json:"lever"`
	// watts saved.
	Watts Estimate `json:"watts"`
}
