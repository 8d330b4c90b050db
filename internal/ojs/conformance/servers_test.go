package conformance_test

import (
	"go/ast"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// needTestMode are the tests that need requests or times that only a server in test mode has, and what they
// need of it. All others run against both servers.
var needTestMode = map[string]string{
	"TestBLK_01_AnEmptyFilterMeansEverything":             "reset",
	"TestBLK_03_ThePurgeOfTheCommandLine":                 "clock",
	"TestDLQ_004_ALetterIsKeptForItsTimeAndNotLonger":     "clock",
	"TestDLQ_004_AQueueKeepsSoManyLetters":                "clock",
	"TestDLQ_004_TheClockOfALetterBeginsAnewWithItsDeath": "clock",
	"TestDLQ_005_ARoundOfPruningIsOneEvent":               "clock",
	"TestDLQ_005_WhatLivesIsNotPruned":                    "clock",
	"TestDLQ_R004_StatisticsAgreeWithTheList":             "reset",
	"TestMET_01_MetricsOfDeadLetters":                     "reset",
	"TestRET_01_AResetEmptiesTheWorld":                    "reset",
	"TestWRK_22_AHeartbeatBringsDirectives":               "directive",
}

// runOnBoth are the tests that run against both servers.
var runOnBoth = []func(*testing.T){
	TestENV_12_OptionsAreTakenUnderEveryName,
	TestENV_13_MetadataMergesIntoMeta,
	TestENV_14_LeasesHaveThreeSpellings,
	TestENV_15_AbsoluteTimesComeBackAsTheyWereWritten,
	TestENV_16_RelativeTimesComeBackAsTheTimesThatTheyMeant,
	TestENV_17_OtherRelativeTimesAreRefused,
	TestDLQ_R001_BulkRetry,
	TestDLQ_R001_BulkRetryReportsWhatFailed,
	TestDLQ_R001_BulkRetryNeedsToBeConfirmed,
	TestBLK_02_APurgeDeletesWhatItsFilterSelects,
	TestDLQ_R003_ARuleReplaysUpToItsLimit,
	TestBLK_04_RulesNeedALimit,
	TestDLQ_001_WhatIsADeadLetter,
	TestDLQ_002_TheHistoryIsKeptAndTheJobUnchanged,
	TestDLQ_003_ARetryStartsTheJobAgain,
	TestDLQ_003_OfManyRetriesOneWins,
	TestLET_01_AJobThatFailsAgainIsALetterAgain,
	TestLET_02_WhatIsNoDeadLetterIsNotFound,
	TestLET_03_ADeletedLetterIsGoneAndItsIdStaysTaken,
	TestLET_04_TheAdminFormIsTheSame,
	TestDLQ_R002_ARetryMayChangeTheJob,
	TestDLQ_R002_ABadChangeIsRefused,
	TestEND_01_EachRouteAnswersWithItsStatus,
	TestEND_02_AJobThatWasMadeHasALocation,
	TestEND_03_StaticPathsAreNoIDs,
	TestEND_04_QueuesAreListedAndDefaultAlwaysExists,
	TestEND_05_APendingJobIsActivatedOnce,
	TestEND_06_UnknownIDsAreNotFound,
	TestEND_07_UnknownPathsAndMethodsAreRefusedInTheSameFormat,
	TestENV_01_ANewJobHasTheMembersOfTheExample,
	TestENV_02_ZeroesAreWrittenAndWhatIsNotYetIsAbsent,
	TestENV_03_EndedJobsHaveTheirTimes,
	TestENV_04_UnknownMembersAreKept,
	TestENV_05_SystemMembersOfAClientAreIgnored,
	TestENV_06_ContentComesBackUnchanged,
	TestENV_07_NamesOfQueues,
	TestENV_08_NamesOfTypes,
	TestENV_09_Priorities,
	TestENV_10_TimeLimitsAreAnsweredInMilliseconds,
	TestENV_11_OtherMembersOfClientsComeBack,
	TestEVT_01_EventsSayWhatBecomesOfAJob,
	TestEVT_02_EndsHaveTheirEvents,
	TestEVT_03_PagesContinueAfterTheirCursor,
	TestEVT_04_CompletedJobsHaveTheirResults,
	TestMAN_01_TheManifestClaimsWhatHolds,
	TestMAN_02_Health,
	TestFRA_01_AnswersHaveTheMediaTypeWhateverIsAccepted,
	TestFRA_02_BothMediaTypesAreTakenWithAndWithoutACharset,
	TestFRA_03_AnotherMediaTypeIsRefused,
	TestFRA_04_AnEmptyBodyNeedsNoMediaType,
	TestFRA_05_RequestIDsAreEchoedOrMade,
	TestFRA_06_TheFamilyOfVersion1_0IsTaken,
	TestFRA_07_BodiesAreJSONObjects,
	TestFRA_08_TimesNeedAZoneAndComeBackInUTC,
	TestFRA_09_IDsAreUUIDv7InLowerCase,
	TestFRA_10_ABodyOfDELETEIsTaken,
	TestFRA_11_AWrongKeyIsRefusedWhereOneIsRequired,
	TestBAD_01_WrongTypesInEveryMember,
	TestBAD_02_TextsThatMeanTwoThings,
	TestBAD_03_Sizes,
	TestBAD_04_SecretsAreRefusedByTheirPlace,
	TestBAD_05_NumbersStayAsTheyAreWritten,
	TestJER_01_EachFailedAttemptIsKept,
	TestJER_02_TheTypeIsThatOfTheErrorItsClassOrItsCode,
	TestJER_03_BacktracesAreCutAtFiftyFrames,
	TestJER_04_SecretsInErrorsAreNotKept,
	TestDLQ_006_AnEntryHasWhatTheExampleHas,
	TestDLQ_006_PagesNeitherRepeatNorSkip,
	TestDLQ_006_PagesAreStableWhileLettersComeAndGo,
	TestLST_01_TheNewestDeathIsFirst,
	TestLST_02_Limits,
	TestDLQ_R005_Filters,
	TestDLQ_R005_ArgsAreSearched,
	TestLST_03_MembersOfClientsDoNotBreakTheList,
	TestQUE_01_NothingIsFetchedFromAPausedQueue,
	TestQUE_02_StatisticsCountEachState,
	TestQUE_03_TheListSaysWhichArePaused,
	TestBAT_01_ABatchIsEnqueuedWhole,
	TestBAT_02_OneBadJobRefusesTheBatch,
	TestBAT_03_UniqueJobsOfABatch,
	TestRTP_01_Defaults,
	TestRTP_02_PoliciesThatAreRefused,
	TestRTP_03_NoneAndOneMeanOneRun,
	TestRTP_04_Backoffs,
	TestRTP_05_JitterIsBetweenAHalfAndOneAndAHalfAndCapped,
	TestRTP_06_ErrorsThatAreNotRetried,
	TestRTP_07_CodesOfHandlersBeatThePolicy,
	TestRTP_08_ARetryIsNeverEarlyAndSoonAfterItsTime,
	TestSTA_11_EveryPairOfStateAndRequest,
	TestSTA_12_OnlyAnAvailableJobIsFetched,
	TestSTA_13_OnlyAnActiveJobIsExtended,
	TestSTA_01_ANewJobIsAvailableScheduledOrPending,
	TestSTA_02_AScheduledJobIsNeverFetchedBeforeItsTime,
	TestSTA_03_AScheduledJobBecomesAvailableByItself,
	TestSTA_04_AJobGoesThroughItsStates,
	TestSTA_05_TwoWorkersNeverClaimOneJob,
	TestSTA_06_OfRequestsAtOnceOneWins,
	TestSTA_07_ACancelledJobHasItsTimeAndIsNotCompleted,
	TestSTA_08_ASecondCancelIsRefused,
	TestSTA_09_ACancelEndsAnActiveJob,
	TestSTA_14_AnExpiredJobIsNeverFetched,
	TestSTA_10_NoOtherStateExists,
	TestUNQ_01_ASecondOneIsRefusedWhileTheFirstIsUnderWay,
	TestUNQ_02_WhatMakesAJobUnique,
	TestUNQ_03_OnConflict,
	TestUNQ_04_StatesAndPeriod,
	TestUNQ_05_OfManyAtOnceOneIsMade,
	TestWRK_01_QueuesAreTakenInTheOrderGiven,
	TestWRK_02_InAQueuePriorityComesBeforeAge,
	TestWRK_03_AFetchedJobIsActiveWithItsAttempt,
	TestWRK_04_AnEmptyFetchIsAnEmptyList,
	TestWRK_05_BadFetchesAreRefused,
	TestWRK_06_AnAckCompletes,
	TestWRK_07_ResultsAreAnyJSON,
	TestWRK_08_ANackAnswersWithWhatBecameOfTheJob,
	TestWRK_09_TheLastNackDiscards,
	TestWRK_10_NotRetryableDiscardsAtOnce,
	TestWRK_11_AJobThatIsHandedBackIsAvailableAtOnce,
	TestWRK_12_ANackNeedsAnError,
	TestWRK_13_OnlyTheHolderAnswers,
	TestWRK_14_AnAnswerWithoutANameIsTheHolders,
	TestWRK_15_AnsweringTwiceIsRefused,
	TestWRK_16_AnsweringForNoJobIsNotFound,
	TestWRK_17_ALeaseEnds,
	TestWRK_18_TheLastLeaseDiscards,
	TestWRK_19_AHeartbeatRestartsTheLease,
	TestWRK_20_HeartbeatsHaveManyForms,
	TestWRK_21_AnExecutionHasATimeLimit,
	TestWRK_23_LeasesAreAsTheFetchOrTheJobSays,
}

// TestKEY_01 runs every other test against the server with keys, where each request has the key of the
// program, or the person, that makes such requests.
func TestKEY_01_JobsAreTheSameWithKeys(t *testing.T) {
	t.Parallel()
	if _, err := withKeys(); err != nil {
		t.Fatal(err)
	}
	for _, test := range runOnBoth {
		t.Run(nameOf(test), test)
	}
}

func nameOf(test func(*testing.T)) string {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	return name[strings.LastIndex(name, ".")+1:]
}

// checkServers checks that each test runs against the servers that it can run against, none is left out, and
// how many there are.
func checkServers(t *testing.T, tests []*ast.FuncDecl) {
	t.Helper()
	var shared []string
	for _, test := range runOnBoth {
		shared = append(shared, nameOf(test))
	}
	keyed := 0
	for _, f := range tests {
		name := f.Name.Name
		needs, listed := needTestMode[name]
		if used := usesTestMode(f); len(used) == 0 && listed || listed && !slices.Contains(used, needs) || len(used) > 0 && !listed {
			t.Errorf("%s uses %q of the test mode, and is listed with %q", name, used, needs)
		}
		switch {
		case strings.HasPrefix(name, ofKeys):
			keyed++
		case listed == slices.Contains(shared, name):
			t.Errorf("%s must be either in needTestMode or in runOnBoth", name)
		}
	}
	if got, want := [...]int{len(shared), len(needTestMode), keyed, len(tests)}, [...]int{129, 11, 9, 149}; got != want {
		t.Errorf("%d tests run against both servers, %d only in test mode, %d only with keys, of %d; want %d", got[0], got[1], got[2], got[3], want)
	}
}

// usesTestMode returns what a test itself uses of the test mode.
func usesTestMode(f *ast.FuncDecl) (used []string) {
	words := map[string]string{"reset": "reset", "advance": "clock", `"test_directive"`: "directive"}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if called, is := n.Fun.(*ast.Ident); is && words[called.Name] != "" {
				used = append(used, words[called.Name])
			}
		case *ast.BasicLit:
			if words[n.Value] != "" {
				used = append(used, words[n.Value])
			}
		}
		return true
	})
	return used
}
