package v1alpha1

import (
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

// EvidenceReference names a ConfigMap in the manager's namespace with evidence that
// another cluster exported.
type EvidenceReference struct {
	// name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key of the file in it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default="evidence.yaml"
	// +optional
	Key string `json:"key,omitempty"`
}

// Tariff says what a kilowatt-hour costs and emits. Each is a figure, or a query of the
// policy's Prometheus server that gives one, asked each five minutes. What was saved in a
// month is told by the tariff as it is now: of one that changes within the day let the
// query give a mean, such as avg_over_time(price[30d]).
// +kubebuilder:validation:XValidation:rule="!(has(self.pricePerKWh) && has(self.priceQuery))",message="set pricePerKWh or priceQuery, not both"
// +kubebuilder:validation:XValidation:rule="!(has(self.gramsCO2PerKWh) && has(self.intensityQuery))",message="set gramsCO2PerKWh or intensityQuery, not both"
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
	// priceQuery is a PromQL expression that yields one sample: the price per kWh now.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	PriceQuery *string `json:"priceQuery,omitempty"`
	// gramsCO2PerKWh is the intensity of the electricity, in grams of CO2 equivalents.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="gramsCO2PerKWh must be from 0 to 10k, such as 380"
	// +optional
	GramsCO2PerKWh *resource.Quantity `json:"gramsCO2PerKWh,omitempty"`
	// intensityQuery is a PromQL expression that yields one sample: grams of CO2
	// equivalents per kWh now.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	IntensityQuery *string `json:"intensityQuery,omitempty"`
}

// Decimal is a number with three significant digits, written out: 12.3, or -0.0451.
// +kubebuilder:validation:Pattern=`^-?[0-9]+([.][0-9]+)?$`
// +kubebuilder:validation:MaxLength=32
type Decimal string

// TariffStatus are the figures that cost and emissions are told by.
type TariffStatus struct {
	// currency of the price, as spec.tariff names it.
	// +optional
	Currency string `json:"currency,omitempty"`
	// pricePerKWh in the currency. Absent: there is none, or it is not known.
	// +optional
	PricePerKWh Decimal `json:"pricePerKWh,omitempty"`
	// gramsCO2PerKWh of CO2 equivalents. Absent: there is none, or it is not known.
	// +optional
	GramsCO2PerKWh Decimal `json:"gramsCO2PerKWh,omitempty"`
}

// Estimate is a figure with the ends of its interval, of spec.verification's confidence.
type Estimate struct {
	// value that is most likely. Less than 0: energy was lost.
	Value Decimal `json:"value"`
	// low end of the interval.
	Low Decimal `json:"low"`
	// high end of the interval.
	High Decimal `json:"high"`
}

// Savings tell what a policy saved in a period.
type Savings struct {
	// basis says what the joules were counted by.
	Basis Basis `json:"basis"`
	// period is a month in UTC, such as 2026-03, or Total.
	// +kubebuilder:validation:MaxLength=7
	Period string `json:"period"`
	// kilowattHours that all levers saved, less what the product itself drew.
	KilowattHours Estimate `json:"kilowattHours"`
	// ownKilowattHours that the product itself drew.
	// +optional
	OwnKilowattHours *Estimate `json:"ownKilowattHours,omitempty"`
	// levers tell what each saved.
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

// LeverSavings tell what one lever saved.
type LeverSavings struct {
	// lever that is told about.
	Lever Lever `json:"lever"`
	// kilowattHours that it saved.
	KilowattHours Estimate `json:"kilowattHours"`
}

// LeverTrial tells how a lever stands on a class of nodes, or of groups.
type LeverTrial struct {
	// lever that is told about.
	Lever Lever `json:"lever"`
	// class of hardware, kernel and workload.
	// +kubebuilder:validation:MaxLength=256
	Class string `json:"class"`
	// stance of the lever there.
	Stance Stance `json:"stance"`
	// units that it was tried on: nodes, or groups for lever TrafficShare.
	// +optional
	Units int32 `json:"units,omitempty"`
	// pairs of blocks, on and off, that each unit has done, and of how many.
	// +optional
	Pairs int32 `json:"pairs,omitempty"`
	// plannedPairs after which the trial ends.
	// +optional
	PlannedPairs int32 `json:"plannedPairs,omitempty"`
	// savedPercent of the energy for the same work. Absent: not known.
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
	// ConditionLedgerReadable is False while the manager does not know what was booked and
	// decided before. Nothing is booked and no trial starts until it does.
	ConditionLedgerReadable = "LedgerReadable"
	// ConditionLedgerStored is False while what the manager books and decides is not stored
	// in the EnergyLedger, so that its successor would not know.
	ConditionLedgerStored = "LedgerStored"
	// ConditionTariffKnown is there while spec.tariff is. It is False while a figure of it
	// is not known.
	ConditionTariffKnown = "TariffKnown"
	// ConditionEvidenceImported is there while spec.verification.evidence names any. It is
	// False while not all of it counts.
	ConditionEvidenceImported = "EvidenceImported"

	// ReasonLeverAdopted: at least one lever acts that was measured to save.
	ReasonLeverAdopted = "LeverAdopted"
	// ReasonNothingToTry: no lever waits for a trial or was in one.
	ReasonNothingToTry = "NothingToTry"
	// ReasonAwaitingTrial: levers wait for their trials.
	ReasonAwaitingTrial = "AwaitingTrial"
	// ReasonOnTrial: levers are on trial.
	ReasonOnTrial = "OnTrial"
	// ReasonNoneAdopted: all levers that were tried were rejected, or not decided on.
	ReasonNoneAdopted = "NoneAdopted"
	// ReasonNoneInForce: levers were measured to save, and none of them acts now.
	ReasonNoneInForce = "NoneInForce"
	// ReasonNotEnforcing: the policy's mode lets no lever act by itself.
	ReasonNotEnforcing = "NotEnforcing"

	// ReasonLedgerRead: the EnergyLedger was read, or there was none.
	ReasonLedgerRead = "LedgerRead"
	// ReasonAwaitingLedger: the EnergyLedger was not read yet.
	ReasonAwaitingLedger = "AwaitingLedger"
	// ReasonLedgerUnreadable: the EnergyLedger holds what this manager cannot read.
	ReasonLedgerUnreadable = "LedgerUnreadable"
	// ReasonLedgerOfAnother: the EnergyLedger of that name belongs to another policy.
	ReasonLedgerOfAnother = "LedgerOfAnotherPolicy"
	// ReasonLedgerStored: what is known is stored.
	ReasonLedgerStored = "LedgerStored"
	// ReasonLedgerTooLarge: it does not fit into an object.
	ReasonLedgerTooLarge = "LedgerTooLarge"
	// ReasonLedgerNotWritten: the API server does not take it, or holds one that is not to be
	// written over.
	ReasonLedgerNotWritten = "LedgerNotWritten"

	// ReasonTariffKnown: all figures of the tariff are known.
	ReasonTariffKnown = "TariffKnown"
	// ReasonNoServer: the policy names no Prometheus server to ask.
	ReasonNoServer = "NoServer"
	// ReasonEvidenceImported: all evidence counts.
	ReasonEvidenceImported = "EvidenceImported"
	// ReasonEvidenceMissing: a ConfigMap, or its key, is not there.
	ReasonEvidenceMissing = "EvidenceMissing"
	// ReasonEvidenceInvalid: a file of evidence is refused.
	ReasonEvidenceInvalid = "EvidenceInvalid"
)

// Saving is an estimate of saved power with its interval.
type Saving struct {
	// lever that saves.
	Lever Lever `json:"lever"`
	// modelled is true when no meter judged the saving.
	// +optional
	Modelled bool `json:"modelled"`
	// milliwatts saved.
	Milliwatts int64 `json:"milliwatts"`
	// lowMilliwatts is the lower end of the interval.
	LowMilliwatts int64 `json:"lowMilliwatts"`
	// highMilliwatts is the upper end of the interval.
	HighMilliwatts int64 `json:"highMilliwatts"`
}

// NodePotential is what levers could save on a node.
type NodePotential struct {
	// name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// levers with what each could save alone, modelled.
	// +listType=map
	// +listMapKey=lever
	// +kubebuilder:validation:MaxItems=16
	Levers []Saving `json:"levers"`
}
