"""The class of a failure: status and code decide, and text only where they leave it open.

Imported by failures only.  Codes are compared as `error_report` writes them: lower case, without
marks and without `error` at the end.
"""

from __future__ import annotations

import re

from mcode_exec.providers.error_report import ErrorReport

#: public error codes of MiniMax (`base_resp.status_code`); what is not here and from 2000 up is the caller's fault
_MINIMAX = {
    1002: "LLM_RATE_LIMITED",
    1004: "LLM_AUTH_ERROR",
    1008: "LLM_CREDITS_EXHAUSTED",
    1026: "LLM_CONTENT_REFUSED",
    1027: "LLM_CONTENT_REFUSED",
    1028: "USAGE_LIMIT_EXCEEDED",
    1030: "USAGE_LIMIT_EXCEEDED",
    1039: "LLM_TPM_RATE_LIMITED",
    1041: "LLM_RATE_LIMITED",
    1042: "LLM_BAD_REQUEST",
    1043: "LLM_BAD_REQUEST",
    1044: "LLM_BAD_REQUEST",
    2045: "LLM_RATE_LIMITED",
    2049: "LLM_AUTH_ERROR",
    2056: "USAGE_LIMIT_EXCEEDED",
    2061: "USAGE_LIMIT_EXCEEDED",
}
#: those that may stand behind a message, where any other number could be anything
_MINIMAX_IN_TEXT = frozenset({1004, 1008, 1026, 1027, 2049, 2056, 2061})

_BY_CODE = {
    code: found
    for found, codes in {
        "LLM_CONTEXT_OVERFLOW": "contextlengthexceeded exceedcontextsize contextwindowexceeded "
        "modelmaxprompttokensexceeded tokenslimitreached",
        "MODEL_UNKNOWN": "modelnotfound modelnotexist invalidmodel unknownmodel modeldecommissioned "
        "modelnotavailable deploymentnotfound",
        # 1113 and the like: Zhipu
        "LLM_CREDITS_EXHAUSTED": "insufficientquota insufficientbalance insufficientcredits insufficientfunds "
        "notenoughbalance exceededcurrentquota arrearage billing billinghardlimitreached billingnotactive 1113",
        "USAGE_LIMIT_EXCEEDED": "usagelimitreached usagelimitexceeded usagenotincluded budgetexceeded 1308 1310",
        "LLM_CONTENT_REFUSED": "contentfilter contentpolicyviolation imagecontentpolicyviolation invalidprompt "
        "responsibleaipolicyviolation datainspectionfailed cyberpolicy biopolicy chemicalpolicy safetypolicy "
        "contentpolicy usagepolicy usagepolicyviolation safetyviolation moderationblocked contentmoderation "
        "guardrailintervened promptblocked 1301",
        "LLM_AUTH_ERROR": "apikeyinvalid accountdeactivated accountdisabled accountsuspended accessterminated "
        "organizationdeactivated organizationdisabled organizationsuspended userdeactivated userdisabled",
        "LLM_CLUSTER_OVERLOADED": "overloaded engineoverloaded serveroverloaded",
    }.items()
    for code in codes.split()
}
#: what a code means when no HTTP status says it (inside a 200 answer)
_BY_CODE_ALONE = {
    code: found
    for found, codes in {
        "LLM_AUTH_ERROR": "authentication auth invalidapikey invalidauthentication unauthorized permission "
        "permissiondenied unauthenticated accessdenied forbidden expiredapikey expiredtoken tokenexpired keyrevoked "
        "apikeyrevoked unsupportedcountryregionterritory ipnotauthorized mismatchedorganization mismatchedproject",
        "LLM_BAD_REQUEST": "notfound invalidrequest invalidargument badrequest unprocessableentity validation "
        "requesttoolarge failedprecondition outofrange unimplemented stringabovemaxlength "
        "arrayabovemaxlength failedtodownloadimage emptyimagefile",
        "LLM_RATE_LIMITED": "ratelimit ratelimitexceeded ratelimitreached toomanyrequests resourceexhausted "
        "throttling requests tokens",
    }.items()
    for code in codes.split()
}
#: what a server says of itself, though it answers 400
_SERVER_CODES = frozenset(("server", "internalserver", "internal", "serviceunavailable"))
#: how the codes of requests that are wrong in a detail begin
_FAULTY = ("invalid", "unsupported", "missing", "unknownparameter", "image")
#: and how they end
_FAULTY_ENDS = ("notfound", "toolarge", "toolong", "notsupported", "notallowed", "alreadyexists")

_OVERFLOW = (
    "maximum context length",
    "max context length",
    "context length exceeded",
    "context_length_exceeded",
    "contextwindowexceedederror",
    "exceeds the context window",
    "exceeds model context window",
    "context window exceeds",
    "exceeds the available context size",
    "exceed context limit",
    "greater than the context length",
    "larger than the context",
    "loaded with context length of only",
    "longer than the maximum model length",
    "context size has been exceeded",
    "exceeded model token limit",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "range of input length should be",
    "too many tokens in the prompt",
    "number of tokens in the prompt cannot exceed",
    "maximum prompt length",
    "reduce the length of the messages",
    "exceeds the maximum number of tokens",
    "exceeds the maximum allowed input length",
)
_OVERFLOW_OF_BOTH = re.compile(r"\binput length and .{0,20}exceed context limit")
_NO_SUCH_MODEL = re.compile(
    r"\bmodels?\b.{0,100}?\b(?:not found|does not exist|not exist|doesn't exist|decommissioned)"
    r"|\b(?:not a valid|unknown|no such|not found the) model\b"
    r"|\binvalid model(?: name)?\b(?! \w+ (?:length|size))(?= passed|:|$| )"
    r"|\bmodel identifier is invalid"
    r"|\bno endpoints found for\b"
)
_CREDIT = (
    "exceeded your current quota",
    "credit balance",
    "credits are depleted",
    "insufficient balance",
    "balance is insufficient",
    "not enough balance",
    "insufficient credit",
    "insufficient funds",
    "insufficient_quota",
    "requires more credits",
    "out of credits",
)
_PLAN = (
    "usage limit",
    "plan limit",
    "monthly limit",
    "weekly limit",
    "spend limit",
    "spending limit",
    "key limit exceeded",
    "budget has been exceeded",
)
_REFUSAL = (
    "content management policy",
    "content policy",
    "contentpolicyviolation",
    "content filtering policy",
    "violates usage guidelines",
    "flagged as potentially violating",
)
_KEY = ("invalid api key", "incorrect api key", "api key not valid", "a valid api key", "api key expired")
_NOT_LET_IN = (*_KEY, "unauthorized", "not authorized", "authentication fail", "authentication error")
_RATE = ("rate limit", "rate-limit", "too many requests")
#: how OpenAI and Groq word a limit and what one call wanted of it
_LIMIT_AND_REQUEST = re.compile(
    r"\blimit:? ([0-9][0-9,_]{0,19})[,;. ]{1,3}(?:used:? [0-9,_]{1,20}[,;. ]{1,3})?requested:? ([0-9][0-9,_]{0,19})"
)
#: codes that mean a rate limit and nothing else; not Gemini's RESOURCE_EXHAUSTED, which it says of quotas too
_RATE_CODES = frozenset(
    ("ratelimit", "ratelimitexceeded", "ratelimitreached", "toomanyrequests", "throttling")
)
#: statuses that say as much as any code
_TELLING = frozenset((401, 402, 403, 407, 408, 409, 425))
_SHORT_TERM = (
    "per minute",
    "per-minute",
    "perminute",
    "per min",
    "per-min",
    "per second",
    "tpm",
    "rpm",
    "tokens per",
    "requests per",
    "tokens_per",
    "requests_per",
)


def class_of(status: int | None, report: ErrorReport, *, is_foreign: bool = False) -> str:
    """One of errors.MODEL_CALL_CODES; `status` is None where nothing said it."""
    if report.minimax in _MINIMAX:
        return _overflow_or(report, _MINIMAX[report.minimax])
    if report.trailing in _MINIMAX_IN_TEXT:
        return _MINIMAX[report.trailing]
    for code in report.codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    if status is not None:
        return _of_code_beside(status, report) or _of_status(status, report, is_foreign)
    if report.minimax is not None:
        return _bad_request(report) if report.minimax >= 2000 else _overflow_or(report, "LLM_UPSTREAM_ERROR")
    for code in report.codes:
        is_faulty = code.startswith(_FAULTY) or code.endswith(_FAULTY_ENDS)
        found = _BY_CODE_ALONE.get(code) or ("LLM_BAD_REQUEST" if is_faulty else None)
        if found == "LLM_BAD_REQUEST":
            return _bad_request(report)
        if found is not None:
            return _throttled(report) if found == "LLM_RATE_LIMITED" else found
    return _of_words(report)


def _of_code_beside(status: int, report: ErrorReport) -> str | None:
    """The class that a code means which says more than its status: 400 and its kind say only that there was none."""
    if status in _TELLING or not 400 <= status < 500:
        return None
    for code in report.codes:
        if _BY_CODE_ALONE.get(code) == "LLM_AUTH_ERROR":
            return "LLM_AUTH_ERROR"
        if code in _RATE_CODES:
            return _throttled(report)
        if code in _SERVER_CODES and status != 429:
            return _overflow_or(report, "LLM_UPSTREAM_ERROR")
    named = report.status
    if status != 429 and named is not None and (named in (401, 402, 429) or named >= 500):
        return _of_status(named, report, is_foreign=False)
    return None


def _of_status(status: int, report: ErrorReport, is_foreign: bool) -> str:
    if status == 429:
        return _throttled(report)
    if status == 402:
        return "LLM_CREDITS_EXHAUSTED"
    if status in (401, 407):
        return "LLM_AUTH_ERROR"
    if status == 403:
        return _forbidden(report)
    if status == 529:
        return "LLM_CLUSTER_OVERLOADED"
    if status in (408, 409, 425):
        return "LLM_UPSTREAM_ERROR"
    if status in (501, 505):  # it cannot do what it was asked, and will not learn it
        return _bad_request(report)
    if status >= 500:
        # llama.cpp and some gateways report an overflow as a server error
        return _overflow_or(report, "LLM_UPSTREAM_ERROR")
    if is_foreign and status in (400, 404, 405, 410, 421):
        return "LLM_BAD_RESPONSE"
    if status == 404 and "model" in report.words and "no endpoints found" not in report.words:
        return "MODEL_UNKNOWN"
    return _bad_request(report)


def _forbidden(report: ErrorReport) -> str:
    if report.says((*_CREDIT, "billing")):
        return "LLM_CREDITS_EXHAUSTED"
    if report.says(_PLAN):
        return "USAGE_LIMIT_EXCEEDED"
    return "LLM_CONTENT_REFUSED" if report.says(_REFUSAL) else "LLM_AUTH_ERROR"


def _throttled(report: ErrorReport) -> str:
    if _is_above_limit(report):
        return "LLM_BAD_REQUEST"
    told = report.words + " ".join(str(detail) for detail in report.details).lower()
    is_short_term = any(word in told for word in _SHORT_TERM) or (
        "tokens" in report.codes or "requests" in report.codes
    )
    if not _RATE_CODES.isdisjoint(report.codes):  # its code says what it is; its words may be the prompt's
        return "LLM_TPM_RATE_LIMITED" if is_short_term else "LLM_RATE_LIMITED"
    if report.hint_ms is not None:  # Gemini: who says when to come back means a limit, whatever its words
        return "LLM_TPM_RATE_LIMITED" if is_short_term else "LLM_RATE_LIMITED"
    if report.says(_CREDIT):
        return "LLM_CREDITS_EXHAUSTED"
    if is_short_term:  # before the weaker words: such texts link to billing pages
        return "LLM_TPM_RATE_LIMITED"
    if report.says(_PLAN):
        return "USAGE_LIMIT_EXCEEDED"
    # a rate limit may be said to be higher on another plan
    is_credit = report.says(("billing",)) and not report.says(_RATE)
    return "LLM_CREDITS_EXHAUSTED" if is_credit else "LLM_RATE_LIMITED"


def _is_above_limit(report: ErrorReport) -> bool:
    """Whether one call asks for more than its limit ever lets through: no wait helps that."""
    if report.says(("request too large",)):
        return True
    found = _LIMIT_AND_REQUEST.search(report.words)
    return found is not None and _count(found[2]) > _count(found[1])


def _count(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))


def _bad_request(report: ErrorReport) -> str:
    if _is_overflow(report):
        return "LLM_CONTEXT_OVERFLOW"
    if report.says(_CREDIT):
        return "LLM_CREDITS_EXHAUSTED"
    if report.says(_PLAN):
        return "USAGE_LIMIT_EXCEEDED"
    if report.says(_KEY):
        return "LLM_AUTH_ERROR"
    if _NO_SUCH_MODEL.search(report.words):
        return "MODEL_UNKNOWN"
    return "LLM_CONTENT_REFUSED" if report.says(_REFUSAL) else "LLM_BAD_REQUEST"


def _of_words(report: ErrorReport) -> str:
    """Neither status nor code: the words are all there is."""
    found = _bad_request(report)
    if found != "LLM_BAD_REQUEST":
        return found
    if report.says(_NOT_LET_IN):
        return "LLM_AUTH_ERROR"
    if report.says(_RATE):
        return _throttled(report)
    return "LLM_CLUSTER_OVERLOADED" if report.says(("overloaded",)) else "LLM_UPSTREAM_ERROR"


def _overflow_or(report: ErrorReport, code: str) -> str:
    return "LLM_CONTEXT_OVERFLOW" if _is_overflow(report) else code


def _is_overflow(report: ErrorReport) -> bool:
    return report.says(_OVERFLOW) or _OVERFLOW_OF_BOTH.search(report.words) is not None
